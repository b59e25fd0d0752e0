"""A question to a procedure, and its answer in the form of the tables. It is pure, and runs in its own thread
because it may concern ten thousand trials.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
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
from easeml_db.words.run import Arm, Run

Row = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """The answer: rows by arm, in their order, and the same in words; `is_end`: no trial will ever train again;
    `is_waiting`: nothing trains until a further arm is opened.
    """

    procedure: Procedure
    rows: Sequence[tuple[int, Sequence[Row]]] = ()
    words: str = ""
    is_end: bool = False
    is_waiting: bool = False


@dataclass(frozen=True)
class Question:
    """The known trials of `arms`, by arm and trial number; trials of `held` arms wait for their arm to open.
    `procedure` is the one that was asked about `arm_id` before (None: it must be made, which may take long as well).
    """

    run: Run
    arm_id: int
    arms: Sequence[Arm]
    known: Mapping[int, Mapping[int, TrialHistory]]
    held: Set[int] = frozenset()
    procedure: Procedure | None = None

    def answer(self) -> Answer:
        """Ask the procedure; raise what it raises."""
        procedure, history = self.procedure or self._new_procedure(), self.history()
        decisions = procedure.ask(history)
        if not decisions and not any(trial.is_training(procedure.max_epochs) for trial in history):
            # Nothing will ever train again: trials that still wait are given up, or the search is over.
            decisions = [StopTrial(trial.trial_number) for trial in history if trial.status == "paused"]
            # A trial that has done its epochs lacks only its test, and keeps the search open.
            lacks_test = any(trial.is_open and trial.n_epochs >= procedure.max_epochs for trial in history)
            if not decisions and not lacks_test:
                return Answer(procedure, is_end=True)
        training = [trial.is_held for trial in history if trial.is_training(procedure.max_epochs)]
        rows = groupby(self._rows(decisions, history, procedure), self._arm_of_row(history))
        name = "|".join(arm.name for arm in self.arms)
        return Answer(
            procedure,
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

    def _new_procedure(self) -> Procedure:
        assert self.run.search is not None
        name = None if covers_all_arms(self.run) else next(a.name for a in self.run.arms if a.arm_id == self.arm_id)
        return create_procedure(self.run.search, arm=name, max_seconds=self.run.max_seconds)

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
        return [arm.arm_id for arm in self.run.arms].index(self.arm_id), len(self.run.arms)


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
