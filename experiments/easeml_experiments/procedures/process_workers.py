"""Task parallelism on plain processes, one for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

from easeml_experiments.peers.launch import in_own_session
from easeml_experiments.peers.record import Record
from easeml_experiments.procedures import searching, tasks
from easeml_experiments.procedures.book import Done, Task
from easeml_experiments.procedures.driving import Workers, drive


def run(folder: Path) -> Record:
    """Search."""
    asked = searching.load(folder)
    with ExitStack() as stack:
        spawned = get_context("spawn")
        pools = [ProcessPoolExecutor(1, spawned, _begin, (folder,)) for _ in range(asked.work.n_workers)]
        return drive("tasks", asked, ProcessWorkers([stack.enter_context(pool) for pool in pools]))


def _begin(folder: Path) -> None:
    """Start of a process."""
    in_own_session()
    tasks.hold(folder)


class ProcessWorkers(Workers):
    """A worker is a pool of one process."""

    def _started(self, worker: ProcessPoolExecutor, task: Task) -> Future[Done]:
        return worker.submit(tasks.train, task)

    def _first_ended(self, results: Sequence[Future[Done]]) -> Future[Done]:
        return next(iter(wait(results, return_when=FIRST_COMPLETED).done))

    def _value(self, result: Future[Done]) -> Done:
        return result.result()
