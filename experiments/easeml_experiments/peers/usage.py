"""Memory and processor time of a group of processes, read from /proc while they run."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

SAMPLE_SECONDS = 0.5
# Reading the memory of a large process takes 13 ms of a processor that what is watched could use.
MOST_OF_A_PROCESSOR = 0.05
_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)
_TICKS = os.sysconf("SC_CLK_TCK")
# Places in /proc/PID/stat, counted behind the command's name (proc(5) counts from 1, and two before it).
_PARENT, _USER_TICKS, _SYSTEM_TICKS = 1, 11, 12


def with_descendants(roots: Iterable[int]) -> list[int]:
    """Return these processes and all that they have started, as far as they run."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        pid = int(path.parent.name)
        if fields := _stat(pid):
            children.setdefault(int(fields[_PARENT]), []).append(pid)
    found, left = [], list(roots)
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def memory_bytes(process_ids: Iterable[int]) -> int:
    """Sum of their proportional set sizes (a page of n processes counts 1/n for each); ended ones count 0."""
    matches = (_PSS.search(_read(Path(f"/proc/{pid}/smaps_rollup"))) for pid in process_ids)
    return sum(int(match[1]) for match in matches if match) * 1024


def processor_seconds(process_id: int) -> float:
    """Return seconds that a process has spent on processors so far; 0 when it has ended."""
    fields = _stat(process_id)
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS if fields else 0.0


class Usage:
    """`with Usage(roots) as usage: ...`: what these processes and their descendants take.

    It is sampled at once, then in a thread; what a process does between the last sample and its end is not seen. roots:
    gives the processes.
    """

    def __init__(self, roots: Callable[[], Iterable[int]]) -> None:
        self.peak_memory_bytes = 0
        self._seconds: dict[int, float] = {}
        self._roots, self._ended = roots, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def processor_seconds(self) -> float:
        """Of all processes that were seen."""
        return sum(self._seconds.values())

    def sampled(self) -> tuple[int, float]:
        """Return the peak of the memory and the processor time so far, this moment included."""
        self._sample()
        return self.peak_memory_bytes, self.processor_seconds

    def __enter__(self) -> Usage:
        self._sample()  # the thread first looks after a pause; what it watches may have ended by then
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = SAMPLE_SECONDS
        while not self._ended.wait(pause):
            began = time.thread_time()
            self._sample()
            pause = max(SAMPLE_SECONDS, (time.thread_time() - began) / MOST_OF_A_PROCESSOR)

    def _sample(self) -> None:
        found = with_descendants(self._roots())
        self.peak_memory_bytes = max(self.peak_memory_bytes, memory_bytes(found))
        for pid in found:
            self._seconds[pid] = max(self._seconds.get(pid, 0.0), processor_seconds(pid))


def _stat(process_id: int) -> list[str]:
    return _read(Path(f"/proc/{process_id}/stat")).rpartition(")")[2].split()


def _read(path: Path) -> str:
    """Return the text of a file under /proc, nothing where the process has ended or is another user's."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
