"""The task-parallel driver: the procedure's tasks go to free workers in their order, first come, first served."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any

from easeml_db.decisions.procedures.contract import StartTrial
from easeml_experiments.peers.record import Record
from easeml_experiments.procedures.search_history import SearchHistory, Task, TaskResult
from easeml_experiments.procedures.search_job import SearchJob

WARM_UP_NUMBER = 1_000_000  # of trials that are trained for an epoch before the search, and forgotten


class WorkerPool(ABC):
    """Workers that do one task at a time; a worker is whatever a subclass makes of it."""

    def __init__(self, workers: Sequence[Any]) -> None:
        self.n_workers = len(workers)
        self._free = list(workers)
        self._busy: dict[Any, Any] = {}  # workers by what stands for their result

    @property
    def n_free(self) -> int:
        """How many workers have no task."""
        return len(self._free)

    def start(self, task: Task) -> None:
        """Give a task to a free worker."""
        worker = self._free.pop(0)
        self._busy[self._started(worker, task)] = worker

    def next_done(self) -> TaskResult:
        """Wait for a task to end; its worker is free again."""
        result = self._first_ended(list(self._busy))
        self._free.append(self._busy.pop(result))
        return self._value(result)

    @abstractmethod
    def _started(self, worker: Any, task: Task) -> Any:
        """Start a task; return what stands for its result."""

    @abstractmethod
    def _first_ended(self, results: Sequence[Any]) -> Any:
        """Wait for one of these results."""

    @abstractmethod
    def _value(self, result: Any) -> TaskResult:
        """Return the result; raise what the task has raised."""


def drive(method: str, job: SearchJob, workers: WorkerPool) -> Record:
    """Search on warm workers."""
    held_bytes = _warm_up(job, workers)
    record = Record(method, workers.n_workers, started=time.time(), held_bytes=held_bytes)
    record.loaded_bytes = held_bytes * workers.n_workers
    history = SearchHistory(job.procedure())
    ends = float("inf") if job.max_seconds is None else record.started + job.max_seconds
    waiting = deque(history.next_tasks())
    while waiting or workers.n_free < workers.n_workers:
        while waiting and workers.n_free and time.time() < ends:
            workers.start(waiting.popleft())
        if workers.n_free == workers.n_workers:
            break
        done = workers.next_done()
        _note(record, done)
        history.tell(done)
        waiting.extend(history.next_tasks())
    record.finished = time.time()
    record.configs = {trial.trial_number: dict(trial.config) for trial in history.trials}
    return record


def _warm_up(job: SearchJob, workers: WorkerPool) -> int:
    """Let every worker train a trial for an epoch; return the bytes of rows that each holds."""
    first = next(each for each in job.procedure().ask([]) if isinstance(each, StartTrial))
    for number in range(workers.n_workers):
        workers.start(Task(WARM_UP_NUMBER + number, first.config, 0, 1, job.search.max_epochs))
    return max(workers.next_done().held_bytes for _ in range(workers.n_workers))


def _note(record: Record, done: TaskResult) -> None:
    """Add a task's results to the record."""
    record.errors.setdefault(done.trial_number, []).extend(done.errors)
    record.measured_at.setdefault(done.trial_number, []).extend(done.measured_at)
    record.hashes[done.trial_number] = done.state_sha256
    record.handed_bytes += done.state_bytes
    for activity, seconds in done.spent_seconds.items():
        record.spent_seconds[activity] = record.spent_seconds.get(activity, 0.0) + seconds
