"""Memory of a group of processes, as the kernel divides it: a page shared by n of them counts 1/n for each."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

SAMPLE_SECONDS = 0.5
_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)


def with_descendants(roots: Iterable[int]) -> list[int]:
    """These processes and all that they have started, as far as they run."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        text = _read(path)
        if text:
            parent = int(text.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, left = [], list(roots)
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def memory_bytes(process_ids: Iterable[int]) -> int:
    """Sum of their proportional set sizes; those that have ended count nothing."""
    matches = (_PSS.search(_read(Path(f"/proc/{pid}/smaps_rollup"))) for pid in process_ids)
    return sum(int(match[1]) for match in matches if match) * 1024


class PeakMemory:
    """`with PeakMemory(roots) as peak: ...; peak.n_bytes`: the largest sum seen, sampled in a thread.

    roots: gives the processes, whose descendants count too.
    """

    def __init__(self, roots: Callable[[], Iterable[int]]) -> None:
        self.n_bytes = 0
        self._roots, self._ended = roots, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.n_bytes = max(self.n_bytes, memory_bytes(with_descendants(self._roots())))


def _read(path: Path) -> str:
    """Text of a file under /proc, nothing where the process has ended or is another user's."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
