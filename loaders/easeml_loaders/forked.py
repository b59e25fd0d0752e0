"""Work in processes that are forked for it: they begin within milliseconds, and write into memory that is shared.

Each process takes every n-th part and stays a few parts ahead of the consumer. It inherits its input, so that only the
number of a part is sent to it. It closes everything else that is open here, such as the connection to a server, at
once: otherwise a server would not notice that this process has ended.
"""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from easeml_plpy.server.errors import InvalidArgument

AHEAD_BYTES = 16 << 20
"""Of results that a process may have ready; two parts in any case."""
MOST_AHEAD = 16

Bytes: TypeAlias = NDArray[np.uint8]


def can_fork() -> bool:
    """Return whether this machine can fork processes."""
    return hasattr(os, "fork")


def read_in_processes(
    n_parts: int, n_processes: int, part_bytes: int, read: Callable[[int, Bytes], object]
) -> Iterator[tuple[object, Bytes]]:
    """Yield for each part, in their order, what `read` returns (which is pickled), with the bytes (part_bytes,) that it
    has written, which are good until the next part is asked for.

    read: called in another process with the number of a part, and bytes to write to, which hold anything. Raises
    InvalidArgument if a process ends before its work is done.
    """
    n_ahead = max(2, min(MOST_AHEAD, AHEAD_BYTES // part_bytes))
    memory = mmap.mmap(-1, n_processes * n_ahead * part_bytes)
    places = np.frombuffer(memory, np.uint8).reshape(n_processes, n_ahead, part_bytes)
    readers: list[tuple[int, Connection]] = []
    try:
        for number in range(n_processes):
            readers.append(_start(range(number, n_parts, n_processes), places[number], read))
        for part in range(n_parts):
            turn, number = divmod(part, n_processes)
            _, answers = readers[number]
            try:
                answer = answers.recv()
            except (EOFError, OSError) as error:
                raise InvalidArgument(
                    "a process that read files was ended by the system",
                    hint="Most often memory ran out: feed fewer or smaller files at once.",
                ) from error
            yield answer, places[number, turn % n_ahead]
            if part + n_processes * n_ahead < n_parts:
                answers.send_bytes(b"taken")
    finally:
        for process, answers in readers:
            answers.close()
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _start(parts: range, places: Bytes, read: Callable[[int, Bytes], object]) -> tuple[int, Connection]:
    """Fork a process that reads these parts; return its number, and the pipe of its answers."""
    ours, theirs = Pipe()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            _close_others(theirs.fileno())
            for turn, part in enumerate(parts):
                if turn >= len(places):
                    theirs.recv_bytes()
                theirs.send(read(part, places[turn % len(places)]))
            status = 0
        finally:
            os._exit(status)  # nothing of this process may end there a second time
    theirs.close()
    return process, ours


def _close_others(kept: int) -> None:
    """Close all files but this one, and the standard ones."""
    for file in map(int, os.listdir("/dev/fd")):
        if file > 2 and file != kept:
            with suppress(OSError):  # the one that listed them
                os.close(file)
