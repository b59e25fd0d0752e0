"""Logs of a private server: their ends, and how they are kept short.

PostgreSQL and the coordinator hold theirs open. So the coordinator copies a long one into a file beside it,
server.log.1, and empties it in place; a line that is written in the very moment of the emptying is lost. PostgreSQL's
own collector would lose none, but it bounds files by their age alone, and tells why a server did not start only later.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from easeml_db.local.folder_contents import LOGS, N_LOG_FILES

MAX_BYTES = 10_000_000
CHECK_SECONDS = 10.0


def last_lines(log: Path, n_lines: int = 5) -> str:
    """Return the end of a log, with that of the files before it if it is short; empty if there is none."""
    lines: list[str] = []
    for path in (log, *(_numbered(log, number) for number in range(1, N_LOG_FILES))):
        if len(lines) >= n_lines:
            break
        if path.exists():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-n_lines:] + lines
    return "\n".join(lines[max(0, len(lines) - n_lines) :])


class Tail:
    """Lines that are written to a log from now on, also after it has been shortened."""

    def __init__(self, log: Path) -> None:
        self._log, self._begun = log, b""
        self._position, self._shortened = _size(log), _identity(_numbered(log, 1))

    def more(self) -> list[str]:
        """Return the lines that are complete since the last time."""
        try:
            file = self._log.open("rb")
        except FileNotFoundError:
            return []
        with file:
            fcntl.flock(file, fcntl.LOCK_SH)  # it is not being shortened
            if (identity := _identity(_numbered(self._log, 1))) != self._shortened:
                self._begun += _read_from(_numbered(self._log, 1), self._position)
                self._position, self._shortened = 0, identity
            file.seek(self._position)
            read = file.read()
        self._position += len(read)
        *lines, self._begun = (self._begun + read).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def keep_short(folder: Path) -> None:
    """Keep the logs of a private server and of its nodes short, as long as this process lives."""

    def look() -> None:
        while True:
            for log in _log_paths(folder):
                with contextlib.suppress(OSError):  # the folder is being removed, or the disk is full: the next time
                    shorten(log)
            time.sleep(CHECK_SECONDS)

    threading.Thread(target=look, name="logs", daemon=True).start()


def shorten(log: Path, max_bytes: int | None = None) -> None:
    """Empty a log that is long; what it held is in the first of the files beside it, and the last of them is removed.

    max_bytes: from which size (default: MAX_BYTES).
    """
    if _size(log) < (MAX_BYTES if max_bytes is None else max_bytes):
        return
    copy = log.with_name(f".{log.name}.{secrets.token_hex(8)}")
    try:
        with _opened(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as to, _opened(log, os.O_RDWR) as source:
            fcntl.flock(source, fcntl.LOCK_EX)
            shutil.copyfileobj(source, to)
            for number in range(N_LOG_FILES - 1, 1, -1):
                with contextlib.suppress(FileNotFoundError):
                    _numbered(log, number - 1).replace(_numbered(log, number))
            copy.replace(_numbered(log, 1))
            shutil.copyfileobj(source, to)  # what was written meanwhile
            source.truncate(0)
    finally:
        copy.unlink(missing_ok=True)


def _opened(path: Path, flags: int) -> FileIO:
    return open(os.open(path, flags | os.O_NOFOLLOW, 0o600), "r+b" if flags & os.O_RDWR else "wb", buffering=0)


def _log_paths(folder: Path) -> Iterator[Path]:
    for place in (folder, *(folder / "nodes").glob("*")):
        yield from (place / name for name in LOGS)


def _numbered(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _identity(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _read_from(path: Path, position: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read()
    except FileNotFoundError:
        return b""
