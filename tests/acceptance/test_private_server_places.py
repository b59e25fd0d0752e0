"""Private servers in folders whose names a shell, PostgreSQL's settings or connection strings could misread."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from easeml_db.local.server import Embedded
from tests.disks import open_folder


@pytest.fixture
def parent() -> Iterator[Path]:
    """A folder that the server's user can enter."""
    folder = open_folder()
    yield folder
    shutil.rmtree(folder)


def easeml(*arguments: object) -> str:
    """What a command prints, which must succeed."""
    command = [sys.executable, "-m", "easeml_db", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("EASEML_DSN", "PG"))}
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_folder_with_apostrophes_and_spaces_does(parent: Path) -> None:
    server = Embedded(parent / "anna's own  data" / "x")
    place, file = ("--data", server.folder), parent / "anna's backup"
    try:
        easeml("up", "--slots", 1, *place)
        (line,) = [line for line in easeml("status", *place).splitlines() if line.startswith("connect")]
        command = line.removeprefix("connect").strip()
        assert shlex.split(command) == ["psql", server.dsn()]
        psql = f'PATH={shlex.quote(server.facts["binaries"])}:"$PATH"; {command}'
        asked = subprocess.run([f"{psql} -XAtc 'SELECT 6 * 7'"], shell=True, capture_output=True, text=True, check=True)
        assert asked.stdout == "42\n"
        assert easeml("psql", *place, "-XAtc", "CREATE TABLE mine AS SELECT 43 AS x") == "SELECT 1\n"
        easeml("backup", file, *place)
        easeml("psql", *place, "-c", "DROP TABLE mine")
        easeml("restore", file, *place)
        assert easeml("psql", *place, "-XAtc", "TABLE mine") == "43\n"
        assert "coordinator is up" in easeml("logs", *place)
        easeml("down", *place)
        easeml("up", *place)
    finally:
        easeml("destroy", "--yes", *place)
    assert not server.folder.exists()
