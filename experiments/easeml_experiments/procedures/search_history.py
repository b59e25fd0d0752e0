"""What a task-parallel driver knows of a search: the history of its trials, and the tasks that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from easeml_db.decisions.procedures.contract import (
    ContinueTrial,
    Procedure,
    StartTrial,
    StopTrial,
    TrialDecision,
    TrialHistory,
)
from easeml_db.decisions.search_space.configs import Config
from easeml_db.errors import InvalidArgument


@dataclass(frozen=True)
class Task:
    """Train a trial from `n_epochs` that it has to `target_epochs` in total, `max_epochs` at most in all its life."""

    trial_number: int
    config: Config
    n_epochs: int
    target_epochs: int
    max_epochs: int


@dataclass(frozen=True)
class TaskResult:
    """What came of a task: the validation error after each of its epochs and when it was known (seconds since 1970),
    the last state's SHA-256, what the worker spent its seconds on; `failure` says why the trial diverged."""

    trial_number: int
    errors: tuple[float, ...]
    measured_at: tuple[float, ...]
    state_sha256: str = ""
    state_bytes: int = 0
    spent_seconds: dict[str, float] = field(default_factory=dict)
    held_bytes: int = 0
    failure: str | None = None


class SearchHistory:
    """Asks the procedure; turns its decisions into tasks, and what came of these into its history."""

    def __init__(self, procedure: Procedure) -> None:
        self._procedure = procedure
        self._trials: list[TrialHistory] = []

    @property
    def trials(self) -> Sequence[TrialHistory]:
        """All trials so far, by number."""
        return tuple(self._trials)

    def next_tasks(self) -> list[Task]:
        """Ask until nothing follows; return the tasks in the order of the decisions."""
        tasks: list[Task] = []
        while decisions := self._procedure.ask(self._trials):
            tasks += [task for decision in decisions for task in self._carried_out(decision)]
        return tasks

    def tell(self, done: TaskResult) -> None:
        """Record the result of a task. A score is an accuracy: higher is better."""
        trial = self._trials[done.trial_number - 1]
        scores = (*trial.scores, *(1.0 - error for error in done.errors))
        status = "finished" if len(scores) >= self._procedure.max_epochs else "paused"
        self._set(replace(trial, scores=scores, status="failed" if done.failure else status))

    def _carried_out(self, decision: TrialDecision) -> list[Task]:
        match decision:
            case StartTrial(config, target, None):
                number = len(self._trials) + 1
                self._trials.append(TrialHistory(number, config, "running", target_epochs=target))
                return [self._task(number)]
            case ContinueTrial(number, target):
                self._set(replace(self._trials[number - 1], status="running", target_epochs=target))
                return [self._task(number)]
            case StopTrial(number):
                self._set(replace(self._trials[number - 1], status="stopped"))
                return []
        raise InvalidArgument(f"a task-parallel driver copies no trials, got {decision}")

    def _task(self, number: int) -> Task:
        trial, last = self._trials[number - 1], self._procedure.max_epochs
        return Task(number, trial.config, trial.n_epochs, trial.target(last), last)

    def _set(self, trial: TrialHistory) -> None:
        self._trials[trial.trial_number - 1] = trial
