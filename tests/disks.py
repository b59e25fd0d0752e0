"""Disks for tests: memory, where servers start and copy databases fast, and small ones that can be filled."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

FULL_DISK_BYTES = 48 << 20
ON_DISK, IN_MEMORY = Path("/var/tmp"), Path("/dev/shm")
# All tests on four workers take 1 to 2 GB of it.
ENOUGH_BYTES = 6 << 30


def open_folder() -> Path:
    """A new folder that any user can enter: root's servers run as another one. In memory, if that has room."""
    folder = Path(tempfile.mkdtemp(prefix="easeml-test-", dir=roomy_place()))
    folder.chmod(0o755)
    return folder


def roomy_place() -> Path:
    """The folder of temporary folders in memory, if that has room, else the one on disk."""
    return IN_MEMORY if IN_MEMORY.is_dir() and _has_room(IN_MEMORY) else ON_DISK


def _has_room(folder: Path) -> bool:
    """Say whether a folder in memory takes programs, and has room: its own limit may be above what memory has left."""
    found = os.statvfs(folder)
    available = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    n_bytes = min(found.f_bavail * found.f_frsize, 1024 * int(available[1]) if available else 0)
    return not found.f_flag & os.ST_NOEXEC and n_bytes > ENOUGH_BYTES


def copy_folder(source: Path, target: Path) -> None:
    """Copy what is in a folder, with owners and modes."""
    subprocess.run(["cp", "-a", f"{source}/.", target], check=True)


def as_root(*command: str) -> list[str]:
    return list(command) if os.geteuid() == 0 else ["sudo", "-n", *command]


@contextmanager
def small_disk_for(database: Session, tables: Sequence[str]) -> Iterator[Path]:
    """A disk of 48 MB that holds these tables of a database, given as schema.table.

    Only root, or who has sudo without a password, may mount one.
    """
    with _mounted() as folder:
        name = sql.Identifier(f"small_{folder.name}")
        (folder / "states").mkdir()
        if os.geteuid() == 0:
            shutil.chown(folder / "states", "postgres", "postgres")
        database.execute(sql.SQL("CREATE TABLESPACE {} LOCATION {}").format(name, str(folder / "states")))
        for table in tables:
            _move(database, table, name)
        yield folder
        with type(database).open(database.dsn) as again:  # the server may have been killed meanwhile
            for table in tables:
                _move(again, table, sql.Identifier("pg_default"))
            again.execute(sql.SQL("DROP TABLESPACE {}").format(name))


@contextmanager
def _mounted() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="easeml-disk-", dir="/var/tmp"))
    subprocess.run(
        as_root("mount", "-t", "tmpfs", "-o", f"size={FULL_DISK_BYTES},mode=777", "tmpfs", str(folder)), check=True
    )
    try:
        folder.chmod(0o777) if os.geteuid() == 0 else None
        yield folder
    finally:
        subprocess.run(as_root("umount", "-l", str(folder)), check=True)
        folder.rmdir()


def _move(database: Session, table: str, space: sql.Identifier) -> None:
    name = sql.Identifier(*table.split("."))
    database.execute(sql.SQL("ALTER TABLE {} SET TABLESPACE {}").format(name, space))


def fill(folder: Path) -> Path:
    """Write a file until the disk is full; it is, as long as that file is there."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            return path
