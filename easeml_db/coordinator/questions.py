"""A question to a procedure, and its answer in the form of the tables. It is pure, and is answered beside the loop
because it may concern ten thousand trials.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any

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
from easeml_db.words.run import Arm, Run, Search

Row = dict[str, Any]
PICKLED_AT_ONCE = 500  # objects: it takes a millisecond, during which no other thread runs


@dataclass(frozen=True)
class Answer:
    """The answer: rows by arm, in their order, and the same in words; `is_end`: no trial will ever train again;
    `is_waiting`: nothing trains until a further arm is opened.
    """

    rows: Sequence[tuple[int, Sequence[Row]]] = ()
    words: str = ""
    is_end: bool = False
    is_waiting: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "rows": [(arm_id, _packed(of_arm)) for arm_id, of_arm in self.rows]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, rows=[(arm_id, _unpacked(parts)) for arm_id, parts in state["rows"]])


@dataclass(frozen=True)
class Question:
    """The known trials of `arms`, by arm and trial number; trials of `held` arms wait for their arm to open.
    `arm_ids` are all arms of the run in their order. A procedure is made once, and asked again.
    """

    search: Search
    max_seconds: float | None
    arm_ids: Sequence[int]
    arm_id: int
    arms: Sequence[Arm]
    known: Mapping[int, Mapping[int, TrialHistory]]
    held: Set[int] = frozenset()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "known": {arm_id: _packed([*some.values()]) for arm_id, some in self.known.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        known = {
            arm_id: {trial.trial_number: trial for trial in _unpacked(parts)}
            for arm_id, parts in state["known"].items()
        }
        vars(self).update(state, known=known)

    def answer(self) -> Answer:
        """Ask the procedure; raise what it raises."""
        procedure, history = self._procedure(), self.history()
        decisions = procedure.ask(history)
        if not decisions and not any(trial.is_training(procedure.max_epochs) for trial in history):
            # Nothing will ever train again: trials that still wait are given up, or the search is over.
            decisions = [StopTrial(trial.trial_number) for trial in history if trial.status == "paused"]
            # A trial that has done its epochs lacks only its test, and keeps the search open.
            lacks_test = any(trial.is_open and trial.n_epochs >= procedure.max_epochs for trial in history)
            if not decisions and not lacks_test:
                return Answer(is_end=True)
        training = [trial.is_held for trial in history if trial.is_training(procedure.max_epochs)]
        rows = groupby(self._rows(decisions, history, procedure), self._arm_of_row(history))
        name = "|".join(arm.name for arm in self.arms)
        return Answer(
            [(arm_id, list(of_arm)) for arm_id, of_arm in rows],
            in_words(name, procedure.max_epochs, decisions),
            is_waiting=not decisions and any(training) and all(training),
        )

    def history(self) -> list[TrialHistory]:
        """Return the history for the procedure, by trial number."""
        histories = [
            replace(trial, is_held=True) if arm_id in self.held else trial
            for arm_id, trials in self.known.items()
            for trial in trials.values()
        ]
        return sorted(histories, key=attrgetter("trial_number"))

    def _procedure(self) -> Procedure:
        covers_all = is_run_wide(self.search.procedure)
        name = None if covers_all else next(arm.name for arm in self.arms if arm.arm_id == self.arm_id)
        return _procedure(self.search, name, self.max_seconds)

    def _arm_of_row(self, history: Sequence[TrialHistory]) -> Callable[[Row], int]:
        """Return a function from a row to the arm of its trial."""
        if len(self.arms) == 1:
            return lambda row: self.arms[0].arm_id
        arm_ids = {arm.name: arm.arm_id for arm in self.arms}
        names = {trial.trial_number: str(trial.config[RESERVED]) for trial in history}
        return lambda row: arm_ids[row.get("architecture") or names[row["trial_number"]]]

    def _rows(
        self, decisions: Sequence[TrialDecision], history: Sequence[TrialHistory], procedure: Procedure
    ) -> list[Row]:
        """Return decisions in the form of the tables."""
        n_epochs = {trial.trial_number: trial.n_epochs for trial in history}
        numbering, n_trials = self._numbering(procedure), len(history)
        rows: list[Row] = []
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

    def _numbering(self, procedure: Procedure) -> tuple[int, int]:
        """Return the position of the arm among the arms that number their own trials, and their count."""
        if procedure.description.is_run_wide:
            return 0, 1
        return list(self.arm_ids).index(self.arm_id), len(self.arm_ids)


@lru_cache(maxsize=32)  # to make one may take long as well
def _procedure(search: Search, arm: str | None, max_seconds: float | None) -> Procedure:
    return create_procedure(search, arm=arm, max_seconds=max_seconds)


def _packed(items: Sequence[Any]) -> list[bytes]:
    """Return items pickled in parts: between two of them other threads run."""
    return [pickle.dumps(items[k : k + PICKLED_AT_ONCE]) for k in range(0, len(items), PICKLED_AT_ONCE)]


def _unpacked(parts: Sequence[bytes]) -> list[Any]:
    return [item for part in parts for item in pickle.loads(part)]  # noqa: S301 - pickled here


def covers_all_arms(run: Run) -> bool:
    """Return whether one procedure decides on the trials of all arms."""
    return run.search is not None and is_run_wide(run.search.procedure)


def in_words(name: str, max_epochs: int, decisions: Sequence[TrialDecision]) -> str:
    """Return what was decided about an arm, or several, for the run's history."""
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
