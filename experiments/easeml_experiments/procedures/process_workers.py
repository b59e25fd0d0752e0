"""Task parallelism on plain processes, one for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

from easeml_experiments.peers.launch import in_own_session
from easeml_experiments.peers.record import Record
from easeml_experiments.procedures import search_job, task_training
from easeml_experiments.procedures.search_history import Task, TaskResult
from easeml_experiments.procedures.task_driver import WorkerPool, drive


def run(folder: Path) -> Record:
    """Search."""
    asked = search_job.load(folder)
    n_workers = asked.work.n_workers
    # Forked, and all at once, before this process has threads: torch is imported once.
    with ProcessPoolExecutor(n_workers, get_context("fork"), _begin, (folder,)) as pool:
        return drive("tasks", asked, ProcessWorkerPool([pool] * n_workers))


def _begin(folder: Path) -> None:
    """Start of a process."""
    in_own_session()
    task_training.hold(folder)


class ProcessWorkerPool(WorkerPool):
    """Each worker stands for one process of the pool, whichever is free."""

    def _started(self, worker: ProcessPoolExecutor, task: Task) -> Future[TaskResult]:
        return worker.submit(task_training.train, task)

    def _first_ended(self, results: Sequence[Future[TaskResult]]) -> Future[TaskResult]:
        return next(iter(wait(results, return_when=FIRST_COMPLETED).done))

    def _value(self, result: Future[TaskResult]) -> TaskResult:
        return result.result()
