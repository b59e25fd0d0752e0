"""Whether the package and the extension of a database are compatible, and what to do if they are not."""

from __future__ import annotations

from typing import Any, Literal

import psycopg
from psycopg import sql

from easeml_db import __version__
from easeml_db.errors import VersionMismatch

EXTENSION = "SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'easeml'"
INSTALLED = "SELECT extversion FROM pg_catalog.pg_extension WHERE extname = %s"

FIRST_WITH_MAINTAIN = 170_000
"""Before, only owners may vacuum, and an owner may attach code to a table that superusers read: autovacuum does it."""

AVAILABLE = """SELECT v.version, e.default_version FROM pg_catalog.pg_available_extension_versions v
    JOIN pg_catalog.pg_available_extensions e USING (name) WHERE v.name = 'easeml'"""


def check_version(installed: str | None) -> None:
    """Refuse to work with a database whose extension is missing or of another version. Raises VersionMismatch."""
    if installed == __version__:
        return
    extension = "no extension easeml" if installed is None else f"extension easeml {installed}"
    is_newer = installed is not None and _numbers(installed) > _numbers(__version__)
    raise VersionMismatch(
        f"the database has {extension}, this package is {__version__}",
        hint=_newer_package(installed) if is_newer else "Run: easeml install --dsn ..., which updates the extension.",
    )


def update_extension(
    connection: psycopg.Connection[Any], extension: Literal["easeml", "easeml_segment"] = "easeml"
) -> None:
    """Bring the extension of a database to this version. Raises VersionMismatch where no way leads there."""
    (row,) = connection.execute(INSTALLED, [extension]).fetchall()
    installed = row["extversion"]
    if _numbers(installed) > _numbers(__version__):
        raise VersionMismatch(
            f"the database has extension {extension} {installed}, this package is {__version__}",
            hint=_newer_package(installed),
        )
    try:
        connection.execute(sql.SQL("ALTER EXTENSION {} UPDATE").format(sql.Identifier(extension)))
    except psycopg.errors.InvalidParameterValue as error:
        raise VersionMismatch(
            f"the database has extension {extension} {installed}, from which no way leads to {__version__}",
            detail=str(error).strip(),
            hint="Update to a version between the two first, or dump the database and restore it into a new one.",
        ) from error


def is_older(version: str, than: str) -> bool:
    """Compare versions number by number."""
    return _numbers(version) < _numbers(than)


def check_available(connection: psycopg.Connection[Any], version: str) -> None:
    """Refuse a server that lacks the extension files of this package, or of a requested former version. Raises
    VersionMismatch.
    """
    rows = connection.execute(AVAILABLE).fetchall()
    versions = {row["version"] for row in rows}
    if {version, __version__} <= versions and all(row["default_version"] == __version__ for row in rows):
        return
    available = ", ".join(sorted(versions)) or "no version of it"
    raise VersionMismatch(
        f"the server would need extension easeml {__version__} and a way to it from {version}; it has {available}",
        hint="Run on the server's machine: easeml install --files-only",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _newer_package(installed: str | None) -> str:
    return f"The database was updated by a newer package: install that one (pip install easeml-db=={installed})."
