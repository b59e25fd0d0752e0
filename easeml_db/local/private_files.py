"""Files and folders of the private server that other users of the machine can neither read nor prepare.

In a folder where others may write, such as the system's temporary one, a name may stand for something that they have
put there: a symbolic link, or a folder that they keep open. So a folder is checked before it is used, and a file is
written under a new name, for its owner alone, and then moved into place. Root writes into folders of the server's user,
who must not be able to redirect root elsewhere either: links are never followed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from easeml_db.errors import NotAllowed
from easeml_db.local.processes import owners, server_ids

OTHERS = stat.S_IRWXG | stat.S_IRWXO
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def make_private_folder(path: Path) -> None:
    """Make a folder that only the server's user may enter; an existing one must be private, too. Raises NotAllowed."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    info = path.lstat()
    if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid():
        os.chown(path, *server_ids(), follow_symlinks=False)
    check_folder(path, OTHERS)


def check_folder(path: Path, forbidden: int = OTHERS_WRITE) -> None:
    """Refuse a folder that is a link, belongs to somebody else, or has a mode with forbidden rights for others."""
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise _refusal(path, "is a symbolic link or a file")
    if info.st_uid not in owners():
        raise _refusal(path, f"belongs to user number {info.st_uid}")
    if info.st_mode & forbidden:
        raise _refusal(path, f"is open to others (mode {stat.S_IMODE(info.st_mode):o})")


def own_target(path: Path) -> Path:
    """Return the target of a link of ours; any other path is returned unchanged, to be checked."""
    return path.resolve() if path.is_symlink() and path.lstat().st_uid in owners() else path


def write_private(path: Path, text: str) -> None:
    """Write a file that only the server's user can read, in one step, without following links."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchown(descriptor, *server_ids())
            file.write(text)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def open_to_append(path: Path) -> int:
    """Open a file that only the server's user reads, at its end, and return the descriptor. Raises NotAllowed."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise _refusal(path, f"cannot be opened: {error.strerror}") from error
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode) or info.st_uid not in owners() or info.st_nlink > 1:
        os.close(descriptor)
        raise _refusal(path, "is no file of the server's alone")
    os.fchmod(descriptor, 0o600)
    os.fchown(descriptor, *server_ids())
    return descriptor


def _refusal(path: Path, what: str) -> NotAllowed:
    return NotAllowed(
        f"{path} {what}", hint="Somebody else may have put it there. Remove it, or choose another folder with --data."
    )
