"""Finding the PostgreSQL of this machine: the newest one that has PL/Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from easeml_db.errors import InvalidArgument, NotFound
from easeml_db.postgres import extension_files

MIN_MAJOR = 15
PLACES = ((Path("/usr/lib/postgresql"), "*/bin"), (Path("/usr"), "pgsql-*/bin"))


def find_binaries() -> Path:
    """Return the bin folder of the newest installed PostgreSQL that has PL/Python, or that of EASEML_BINDIR."""
    if chosen := os.environ.get("EASEML_BINDIR"):
        if not (Path(chosen) / "initdb").exists():
            raise InvalidArgument(f"EASEML_BINDIR: there is no initdb in {chosen}")
        return Path(chosen)
    folders = [folder for place, pattern in PLACES for folder in place.glob(pattern)]
    usable = [(major, folder) for folder in folders if (major := _major(folder)) >= MIN_MAJOR and _has_python(folder)]
    if not usable:
        raise NotFound(
            f"no PostgreSQL {MIN_MAJOR} or newer with PL/Python is installed",
            hint="On Debian or Ubuntu: apt-get install postgresql postgresql-plpython3-15 (or your version's number).",
        )
    return max(usable)[1]


def find_client_programs(major: int) -> Path:
    """Return the folder of pg_dump and pg_restore of a server's major version, or that of EASEML_BINDIR.

    Programs of a newer version write files and statements that an older server does not know; those of an older version
    refuse a newer server. Raises NotFound if only others are installed.
    """
    if chosen := os.environ.get("EASEML_BINDIR"):
        return Path(chosen)
    folders = [folder for place, pattern in PLACES for folder in place.glob(pattern)]
    by_major = {_major(folder): folder for folder in folders if (folder / "pg_restore").exists()}
    if major in by_major:
        return by_major[major]
    if (somewhere := shutil.which("pg_restore")) and program_version(somewhere) == major:
        return Path(somewhere).parent
    there = ", ".join(map(str, sorted(by_major))) or "none"
    raise NotFound(
        f"the server is PostgreSQL {major}, and this machine has no pg_dump and pg_restore of that version: {there}",
        hint=f"Install that version's client package, for example: apt-get install postgresql-client-{major}."
        " EASEML_BINDIR names a folder with others that you want to use.",
    )


def program_version(program: str | Path) -> int:
    """Return the major version that a program reports; 0 if it reports none."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r" (\d+)", said)
    return int(match[1]) if match else 0


def _major(folder: Path) -> int:
    """Return the major version in the folder's name; 0 if there is none."""
    match = re.search(r"(\d+)", folder.parent.name)
    return int(match[1]) if match else 0


def _has_python(folder: Path) -> bool:
    """Return whether a server is installed there, with PL/Python."""
    if not (folder / "initdb").exists():
        return False
    return (extension_files.share_folder(folder) / "extension" / "plpython3u.control").exists()
