"""Work side by side on all cores: one process each, with one BLAS thread; in this process when there is little."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

Value = TypeVar("Value")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Workers:
    """Processes that wait for calls; none of them with `pool` None."""

    def __init__(self, pool: ProcessPoolExecutor | None) -> None:
        self._pool = pool

    def map(self, function: Callable[..., Value], calls: Sequence[tuple[Any, ...]]) -> list[Value]:
        """Return a function's results at each tuple of arguments, in their order; the function is one of a module."""
        if self._pool is None:
            return [function(*arguments) for arguments in calls]
        waiting = [self._pool.submit(function, *arguments) for arguments in calls]
        return [each.result() for each in waiting]


@contextmanager
def workers(*, in_process: bool = False) -> Iterator[Workers]:
    """Start workers on all cores, gone at the end. Processes read their number of threads when they import numpy."""
    if in_process:
        yield Workers(None)
        return
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pool = ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=multiprocessing.get_context("spawn"))
    try:
        yield Workers(pool)
    finally:
        pool.shutdown(cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
