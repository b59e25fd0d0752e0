"""One command at a time starts, stops or removes the private server in a folder; others wait for it.

The lock is that of a file in the folder, which goes when its holder ends. The servers that a command starts do not
inherit it. A server in a container has it for as long as it runs (docker/entrypoint.py).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from easeml_db.local.folder_contents import LOCK
from easeml_db.local.private_files import open_to_append


@contextmanager
def alone(folder: Path, check: Callable[[], object], waits: Callable[[], object]) -> Iterator[None]:
    """Keep other commands away from a folder during a block. check: makes the folder or refuses it, each time before
    the lock is asked for; waits: called if another command has it. Raises NotAllowed for a lock of somebody else.
    """
    descriptor = _locked(folder / LOCK, check, waits)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path, check: Callable[[], object], waits: Callable[[], object]) -> int:
    while True:
        check()
        descriptor = open_to_append(path)
        try:
            _take(descriptor, waits)
            if _is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the folder was removed meanwhile, and this file with it


def _take(descriptor: int, waits: Callable[[], object]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waits()
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
