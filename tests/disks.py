"""Small disks for tests: what a database keeps on one can fill it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

if TYPE_CHECKING:
    from tests.conftest import Session

FULL_DISK_BYTES = 48 << 20


def as_root(*command: str) -> list[str]:
    return list(command) if os.geteuid() == 0 else ["sudo", "-n", *command]


@contextmanager
def small_disk_for(database: Session, tables: Sequence[str]) -> Iterator[Path]:
    """A disk of 48 MB that holds these tables of a database, given as schema.table."""
    if os.geteuid() != 0 and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be mounted by root only, or with sudo")
    folder = Path(tempfile.mkdtemp(prefix="easeml-disk-", dir="/var/tmp"))
    subprocess.run(
        as_root("mount", "-t", "tmpfs", "-o", f"size={FULL_DISK_BYTES},mode=777", "tmpfs", str(folder)), check=True
    )
    try:
        folder.chmod(0o777) if os.geteuid() == 0 else None
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
    finally:
        subprocess.run(as_root("umount", "-l", str(folder)), check=True)
        folder.rmdir()


def _move(database: Session, table: str, space: sql.Identifier) -> None:
    name = sql.Identifier(*table.split("."))
    database.execute(sql.SQL("ALTER TABLE {} SET TABLESPACE {}").format(name, space))


def fill(folder: Path) -> Path:
    """Write a file until the disk is full."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            return path
