"""Memory: what the machine has, and what a session may take of it.

Without a limit the kernel ends a server process that takes too much, and PostgreSQL then restarts everybody's session.
So a slot on the CPU that has no limit of its own gets its share of the machine, and a session that calls an entry point
of tenants gets at most half of it. Beyond its limit (RLIMIT_DATA) an allocation fails, and with it only the statement.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import sys
from functools import cache
from pathlib import Path

SHARE_OF_SLOTS, SHARE_OF_A_SESSION = 0.75, 0.5
LEAST_BYTES = 1 << 30  # what libraries take before any work, three times over
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


LARGE_BYTES, KEPT_BYTES = 32 << 20, 64 << 20
"""Values of the first size are mapped, each by itself; of freed memory at the end of the heap the second is kept."""
WORDS = ("can't allocate memory", "bad_alloc", "bad allocation")
"""Of torch's allocator on the CPU, which raises a plain RuntimeError, and of libraries in C++ such as LightGBM."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, as malloc.h numbers them


@cache
def machine_bytes() -> int:
    """Return the memory of this machine, or of the container that the server runs in."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in map(Path, CGROUP_LIMITS):
        if path.exists() and (text := path.read_text(encoding="ascii").strip()).isdigit():
            limits.append(int(text))
    return min(limits)


def is_exhausted(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, here or on a GPU."""
    torch = sys.modules.get("torch")
    is_known = isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.cuda.OutOfMemoryError))
    return is_known or (isinstance(error, RuntimeError) and says_exhausted(str(error)))


def says_exhausted(message: str) -> bool:
    """Return whether a library's message means that memory ran out."""
    return any(words in message for words in WORDS)


def slot_share(n_slots: int) -> int:
    """Return the memory limit of a slot on the CPU that has none of its own."""
    return max(LEAST_BYTES, int(SHARE_OF_SLOTS * machine_bytes()) // max(n_slots, 1))


@cache
def keep_freed_memory() -> None:
    """Make this process keep some of the memory that it frees; called once. A unit allocates and frees states and
    batches of a megabyte each. The C library would return each to the kernel, and the next allocation would wait for
    its pages again: a fifth of the computing time of a short unit.
    """
    # By ctypes, since Python has no call for it, and MALLOC_TRIM_THRESHOLD_ in the environment would have to be set
    # before the server starts. Only the GNU C library has it; others decide by themselves.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


@cache
def limit_session() -> None:
    """Limit the memory of this process, once; a slot sets its own limit at each unit."""
    keep_freed_memory()
    limit_to(max(LEAST_BYTES, int(SHARE_OF_A_SESSION * machine_bytes())), is_lower=True)


def limit_to(n_bytes: int, *, is_lower: bool = False) -> None:
    """Set the memory limit of this process, at most its hard limit; `is_lower`: only if that lowers it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = n_bytes if hard == resource.RLIM_INFINITY else min(n_bytes, hard)
    if not is_lower or soft == resource.RLIM_INFINITY or limit < soft:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def unlimited() -> None:
    """Remove the memory limit: a GPU's driver reserves more addresses than there is memory."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def demand(n_bytes: int) -> None:
    """Raise MemoryError unless this process may take that much more now: it is mapped, not used, and given back. For
    libraries that write to what they could not allocate.
    """
    try:
        mmap.mmap(-1, max(n_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{n_bytes / 1e9:.1f} GB more are needed") from error


def session_bytes() -> int:
    """Return the memory that this process may take: its limit, or all that the machine has."""
    soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return machine_bytes() if soft == resource.RLIM_INFINITY else min(soft, machine_bytes())
