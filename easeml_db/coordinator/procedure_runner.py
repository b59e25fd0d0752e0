"""Asks each arm's procedure about its trials at the end of every epoch, and records what it decides.

The coordinator's loop says when something has happened; the dispatcher is told what the tables then say. A procedure
decides on what the tables say of its trials, so the runner keeps only which arms it has to ask about. What is known of
a run is the dispatcher's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain, groupby
from typing import Any

from easeml_db.coordinator.faults import NOT_THE_RUNS_FAULT, FaultOfOthers, faults_of, for_others
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.coordinator.ports.searches import SearchStore
from easeml_db.coordinator.trial_histories import TrialHistories
from easeml_db.decisions.hopper.dispatcher import Dispatcher
from easeml_db.decisions.procedures import is_run_wide
from easeml_db.decisions.procedures.contract import (
    ContinueTrial,
    Procedure,
    StartTrial,
    StopTrial,
    TrialDecision,
    TrialHistory,
)
from easeml_db.decisions.procedures.creation import create_procedure
from easeml_db.decisions.procedures.proposal import trial_number_of
from easeml_db.decisions.search_space.specs import RESERVED
from easeml_db.errors import EasemlError, NotFound, StaleLease
from easeml_db.words.run import Arm, Run
from easeml_db.words.training_unit import TrainingUnit

# Where somebody holds the rows of trials, they are asked about again so much later, twice as much each time.
FIRST_HOLD_SECONDS, LAST_HOLD_SECONDS = 0.02, 1.0


class ProcedureRunner:
    """One procedure inside every open arm of the runs that have a search, or one for all arms of a run.

    `meanwhile` lets units of others go on as long as a procedure thinks.
    """

    def __init__(
        self,
        searches: SearchStore,
        runs: RunStore,
        lease: Lease,
        dispatcher: Dispatcher,
        meanwhile: Callable[[float], Awaitable[None]],
    ) -> None:
        self._searches, self._run_store, self._lease, self._dispatcher = searches, runs, lease, dispatcher
        self._meanwhile, self._histories = meanwhile, TrialHistories(searches)
        self._procedures: dict[int, Procedure] = {}  # by arm
        self._due: dict[tuple[int, int], None] = {}  # run and arm, in the order in which something happened
        self._held: dict[tuple[int, int], float] = {}  # until when these are passed over
        self._failed: dict[int, str] = {}  # runs whose procedure cannot go on, with the reason
        self._pauses: dict[tuple[int, int], float] = {}  # how long they were passed over for the last time
        self._has_waited = False  # whether the last question was thought about for long

    # What happens

    def put_run(self, run: Run) -> None:
        """Ask about the open arms of a run that is new or renewed."""
        if run.search is not None:
            self._histories.forget(arm.arm_id for arm in run.arms)
            self._due |= {(run.run_id, arm.arm_id): None for arm in run.arms if arm.is_open and not arm.is_closed}

    def drop_run(self, run_id: int) -> None:
        """Forget a run, before the dispatcher does."""
        run = self._searched(run_id)
        for arm in run.arms if run is not None else ():
            self._histories.forget([arm.arm_id])
            self._procedures.pop(arm.arm_id, None)
            self._due.pop((run_id, arm.arm_id), None)
            self._pauses.pop((run_id, arm.arm_id), None)

    def arm_opened(self, run_id: int, arm_id: int) -> None:
        """Ask about an arm: its trials may run now."""
        if self._searched(run_id) is not None:
            self._due[run_id, arm_id] = None

    def recorded(self, unit: TrainingUnit) -> None:
        """Note that a unit is recorded: the last validation of an epoch is a result."""
        run = self._searched(unit.run_id)
        if run is None or unit.trial_id not in run.arm_of:
            return
        self._histories.changed(run.arm_of[unit.trial_id], unit.trial_id)
        if unit.kind != "train" and (unit.step + 1) % run.trials[0].n_partitions == 0:
            self.trial_changed(unit.run_id, unit.trial_id)

    def trial_changed(self, run_id: int, trial_id: int) -> None:
        """Ask about the arm of a trial that has a new result, or is over."""
        run = self._searched(run_id)
        if run is not None and trial_id in run.arm_of:
            self._histories.changed(run.arm_of[trial_id], trial_id)
            self._due[run_id, run.arm_of[trial_id]] = None

    def _searched(self, run_id: int) -> Run | None:
        """Return an open run that has a search."""
        open_run = self._dispatcher.runs.get(run_id)
        return None if open_run is None or open_run.run.search is None else open_run.run

    # What follows

    async def decide(self, now_seconds: float) -> int:
        """Ask about every arm of which something has happened, until nothing follows any more, or one has been thought
        about for long: then others have their turn. Return the bytes of states that were pruned."""
        pruned_bytes = 0
        if not self._due:
            self._held.clear()
            return pruned_bytes
        self._held = {key: until for key, until in self._held.items() if until > now_seconds and key in self._due}
        while due := next((key for key in self._due if key not in self._held), None):
            del self._due[due]
            run_id, arm_id = due
            run = self._searched(run_id)
            if run is None or self._dispatcher.runs[run_id].is_over:
                continue
            self._has_waited = False
            try:
                with faults_of(run_id):
                    pruned_bytes += await self._decide(run, arm_id)
                self._pauses.pop(due, None)
            except FaultOfOthers as fault:
                self._due[due] = None
                raise fault.error from fault.error.__cause__
            except (NotFound, StaleLease):  # the tables may be ahead of what is known
                self._histories.forget(arm.arm_id for arm in run.arms)
                self._hold(due, now_seconds)
            except NOT_THE_RUNS_FAULT:
                raise
            except EasemlError as error:
                self._dispatcher.runs.end_budget(run_id)
                self._failed[run_id] = f"its procedure cannot go on: {error}"
            if self._has_waited:
                break
        return pruned_bytes

    def take_failed(self) -> dict[int, str]:
        """Return the runs whose procedure cannot go on, with the reason, each once."""
        found, self._failed = self._failed, {}
        return found

    def held_until(self) -> float:
        """Return when an arm is to be asked about without a message: 0 for at once, infinity when none is."""
        return min((self._held.get(key, 0.0) for key in self._due), default=math.inf)

    async def _go_on_beside(self, timeout_seconds: float) -> None:
        self._has_waited = True
        await for_others(self._meanwhile(timeout_seconds))

    def _hold(self, due: tuple[int, int], now_seconds: float) -> None:
        """Ask about an arm later: somebody may be at its rows."""
        self._pauses[due] = min(2 * self._pauses.get(due, FIRST_HOLD_SECONDS / 2), LAST_HOLD_SECONDS)
        self._due[due], self._held[due] = None, now_seconds + self._pauses[due]

    async def _decide(self, run: Run, arm_id: int) -> int:
        arms = [arm for arm in run.arms if arm.arm_id == arm_id or _is_run_wide(run)]
        history, pruned_bytes = await self._history(run, arms), 0
        asked: list[Procedure] = []

        def question() -> list[TrialDecision]:
            # To make one may take long, too: it draws all configs of some searches.
            asked.append(self._procedures.get(arm_id) or _procedure(run, arm_id))
            return asked[0].ask(history)

        decisions = await self._searches.answer(question, self._go_on_beside)
        if self._searched(run.run_id) is None:  # it ended meanwhile
            return 0
        procedure = self._procedures[arm_id] = asked[0]
        decisions = decisions or self._given_up(run, arms, procedure, history)
        if not decisions:
            return 0
        rows = _rows(decisions, history, _numbering(run, arm_id, procedure), procedure)
        for arm, of_arm in groupby(rows, lambda row: _arm_of(row, history, arms)):
            write = self._searches.apply_decisions(run, arm.arm_id, list(of_arm))
            pruned_bytes += await self._lease.write(write)
        name = "|".join(arm.name for arm in arms)
        await self._run_store.note(run.run_id, None, "procedure", _in_words(name, procedure.max_epochs, decisions))
        known = self._searched(run.run_id)
        renewed = None if known is None else await self._run_store.read_again(known)
        if renewed is not None:
            self._dispatcher.put_run(renewed)
            self._note_decided(renewed, {row["trial_number"] for row in rows})
            self._due[run.run_id, arm_id] = None  # what follows may be certain already
        return pruned_bytes

    async def _history(self, run: Run, arms: Sequence[Arm]) -> list[TrialHistory]:
        is_open = self._dispatcher.runs[run.run_id].arms.is_open
        histories = [
            [trial if is_open(arm.arm_id) else replace(trial, is_held=True) for trial in known]
            for arm in arms
            for known in [await self._histories.of_arm(run, arm.arm_id)]
        ]
        return sorted(chain.from_iterable(histories), key=lambda trial: trial.trial_number)

    def _note_decided(self, run: Run, trial_numbers: Set[int]) -> None:
        for trial in run.trials:
            if trial.trial_number in trial_numbers:
                self._histories.changed(run.arm_of[trial.trial_id], trial.trial_id)

    def _given_up(
        self, run: Run, arms: Sequence[Arm], procedure: Procedure, history: Sequence[TrialHistory]
    ) -> list[TrialDecision]:
        """When nothing will ever train again, return that trials which still wait are given up, or end the search."""
        if any(trial.is_training(procedure.max_epochs) for trial in history):
            return []
        paused = [StopTrial(trial.trial_number) for trial in history if trial.status == "paused"]
        if not paused and not any(_is_tested(trial, procedure.max_epochs) for trial in history):
            for arm in arms:
                self._dispatcher.runs.end_search(run.run_id, arm.arm_id)
        return list(paused)


def _procedure(run: Run, arm_id: int) -> Procedure:
    assert run.search is not None
    name = None if _is_run_wide(run) else next(arm.name for arm in run.arms if arm.arm_id == arm_id)
    return create_procedure(run.search, arm=name, max_seconds=run.max_seconds)


def _is_run_wide(run: Run) -> bool:
    """Say whether one procedure decides on the trials of all arms."""
    return run.search is not None and is_run_wide(run.search.procedure)


def _is_tested(trial: TrialHistory, max_epochs: int) -> bool:
    """Say whether a trial is through with its epochs, and only its test is missing."""
    return trial.is_open and trial.n_epochs >= max_epochs


def _numbering(run: Run, arm_id: int, procedure: Procedure) -> tuple[int, int]:
    """Return the position of an arm among those that number their trials by themselves, and how many these are."""
    if procedure.description.is_run_wide:
        return 0, 1
    return [arm.arm_id for arm in run.arms].index(arm_id), len(run.arms)


def _arm_of(row: Mapping[str, Any], history: Sequence[TrialHistory], arms: Sequence[Arm]) -> Arm:
    """Return the arm of the trial that a decision is about."""
    if len(arms) == 1:
        return arms[0]
    name = row.get("architecture") or next(t.config[RESERVED] for t in history if t.trial_number == row["trial_number"])
    return next(arm for arm in arms if arm.name == name)


def _rows(
    decisions: Sequence[TrialDecision],
    history: Sequence[TrialHistory],
    numbering: tuple[int, int],
    procedure: Procedure,
) -> list[dict[str, Any]]:
    """Return decisions as the tables take them."""
    n_epochs = {trial.trial_number: trial.n_epochs for trial in history}
    rows: list[dict[str, Any]] = []
    n_trials = len(history)
    for decision in decisions:
        match decision:
            case StartTrial(config, target, parent):
                number = trial_number_of(n_trials, *numbering)
                rows.append({
                    "kind": "start", "trial_number": number, "architecture": config[RESERVED],
                    "config": {name: value for name, value in config.items() if name != RESERVED},
                    "target_epochs": target, "bracket": procedure.bracket_of(n_trials), "parent": parent,
                    "inherited_epochs": 0 if parent is None else n_epochs[parent],
                })  # fmt: skip
                n_trials += 1
            case ContinueTrial(number, target):
                rows.append({"kind": "continue", "trial_number": number, "target_epochs": target})
            case StopTrial(number):
                rows.append({"kind": "stop", "trial_number": number})
    return rows


def _in_words(name: str, max_epochs: int, decisions: Sequence[TrialDecision]) -> str:
    counts: Counter[str] = Counter()
    for decision in decisions:
        match decision:
            case StartTrial(_, target, parent):
                what = "started" if parent is None else "copied"
                counts[f"{what} up to epoch {target or max_epochs}"] += 1
            case ContinueTrial(_, target):
                counts[f"continued to epoch {target}"] += 1
            case StopTrial():
                counts["stopped"] += 1
    return f"{name}: " + ", ".join(f"{n} {what}" for what, n in counts.items())
