"""Forked processes read parts side by side: their order is kept, memory is used again, and one that dies is told."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from numpy.typing import NDArray

from easeml_loaders.forked import MOST_AHEAD, read_in_processes
from easeml_plpy.server.errors import InvalidArgument

Bytes = NDArray[np.uint8]


@pytest.mark.parametrize("n_processes", [1, 2, 3])
def test_parts_come_in_their_order_however_many_there_are(n_processes: int) -> None:
    def read(part: int, memory: Bytes) -> str:
        memory[:] = part
        return "x" * part * 1000  # more than a pipe takes at once

    n_parts = 3 * MOST_AHEAD * n_processes + 1
    found = [
        (len(str(told)), set(memory.tolist())) for told, memory in read_in_processes(n_parts, n_processes, 10, read)
    ]
    assert found == [(part * 1000, {part}) for part in range(n_parts)]


def test_a_process_that_is_ended_is_told_and_leaves_none_behind() -> None:
    processes: list[object] = []

    def read(part: int, memory: Bytes) -> int:
        if part == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    with pytest.raises(InvalidArgument, match="ended by the system"):
        processes.extend(told for told, _ in read_in_processes(100, 2, 10, read))
    assert len(processes) == 5
    for process in set(processes):
        assert isinstance(process, int)
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_what_is_open_here_is_not_open_there() -> None:
    """A server would take a connection for open as long as any process has it open."""
    ours, theirs = os.pipe()

    def read(part: int, memory: Bytes) -> bool:
        try:
            os.fstat(theirs)
        except OSError:
            return False
        return True

    try:
        assert [told for told, _ in read_in_processes(2, 2, 10, read)] == [False, False]
    finally:
        os.close(ours)
        os.close(theirs)
