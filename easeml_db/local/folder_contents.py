"""Files that a private server keeps in its folder: it takes over no other folder, and removes nothing else."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from easeml_db.errors import NotAllowed

FACTS, LOCK = "easeml.json", "lock"
LOGS, N_LOG_FILES = ("server.log", "coordinator.log"), 5
"""Logs, and how many files each has: itself, and older ones with a number."""
NAMES = frozenset(
    {
        "cluster", "socket", "nodes", "password", LOCK, FACTS, "pg_service.conf", "coordinator.pid",
        *LOGS, *(f"{name}.{number}" for name in LOGS for number in range(1, N_LOG_FILES)),
    }
)  # fmt: skip
UNFINISHED = ("cluster.unfinished-", *(f".{name}." for name in sorted(NAMES)))  # what an interrupted command left
OF_THE_DISK = "lost+found"


def check_entries(folder: Path) -> None:
    """Refuse a folder that is no private server's and holds something else. Raises NotAllowed."""
    if (folder / FACTS).exists():
        return
    others = sorted(path.name for path in folder.iterdir() if not _is_own(path) and path.name != OF_THE_DISK)
    if others:
        raise NotAllowed(
            f"{folder} is no folder of a private server: it holds {', '.join(others[:3])}"
            + (f" and {len(others) - 3} more" if len(others) > 3 else ""),
            hint="A private server needs a folder of its own: give an empty or a new one with --data.",
        )


def remove_entries(folder: Path) -> None:
    """Remove what a private server keeps in its folder, and the folder itself if nothing else is in it."""
    if not folder.is_dir():
        return
    # A command that waits for the lock starts once its file is gone, so that file goes last.
    for path in sorted(filter(_is_own, folder.iterdir()), key=lambda path: path.name == LOCK):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty, or a place where a disk is mounted
        folder.rmdir()


def _is_own(path: Path) -> bool:
    return path.name in NAMES or path.name.startswith(UNFINISHED)
