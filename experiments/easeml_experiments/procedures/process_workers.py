"""Task parallelism on plain processes, one for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
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
    with ExitStack() as stack:
        spawned = get_context("spawn")
        pools = [ProcessPoolExecutor(1, spawned, _begin, (folder,)) for _ in range(asked.work.n_workers)]
        return drive("tasks", asked, ProcessWorkerPool([stack.enter_context(pool) for pool in pools]))


def _begin(folder: Path) -> None:
    """Start of a process."""
    in_own_session()
    task_training.hold(folder)


class ProcessWorkerPool(WorkerPool):
    """A worker is a pool of one process."""

    def _started(self, worker: ProcessPoolExecutor, task: Task) -> Future[TaskResult]:
        return worker.submit(task_training.train, task)

    def _first_ended(self, results: Sequence[Future[TaskResult]]) -> Future[TaskResult]:
        return next(iter(wait(results, return_when=FIRST_COMPLETED).done))

    def _value(self, result: Future[TaskResult]) -> TaskResult:
        return result.result()
