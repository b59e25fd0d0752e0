"""An update of the extension beside views that users have built on its tables: they are dropped, and made anew after.

Views are made by their owners, since what stands in them runs code of their owners when it is read. Other objects are
never dropped: the update is refused, and the statements that would drop them are listed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import make_conninfo

from easeml_db import __version__
from easeml_db.errors import EasemlError, NotAllowed
from easeml_db.local.binaries import find_client_programs
from easeml_db.local.by_owner.loading import LeftOut, load_live, open_for_owners
from easeml_db.local.by_owner.sessions import owner_sessions
from easeml_db.local.dump_files import run_program, without_password
from easeml_db.postgres.extension_files import sql_folder
from easeml_db.postgres.extension_scripts import dependents, upgrades
from easeml_db.postgres.versions import EXTENSION, update_extension

Connection = psycopg.Connection[dict[str, Any]]


MOST_SHOWN = 200
SAME_SERVER = ("host", "hostaddr", "port", "dbname", "user", "passfile", "sslmode", "sslrootcert", "sslcert", "sslkey")
"""Parameters of a connection that every pg_dump knows; psycopg's own libpq may be newer and name others."""


class Update(NamedTuple):
    """What became of users' views."""

    views: tuple[str, ...] = ()
    """All that were dropped."""
    left_out: tuple[LeftOut, ...] = ()
    """What of them could not be made anew."""
    kept: Path | None = None
    """A dump of all of them, if any could not."""


def update_beside_views(connection: Connection) -> Update:
    """Bring the extension to this version. Raises NotAllowed if other objects than views depend on what changes,
    VersionMismatch where no way leads there.
    """
    (row,) = connection.execute(EXTENSION).fetchall()
    name = f"{row['extversion']}--{__version__}"
    if name not in upgrades(sql_folder()):
        update_extension(connection)
        return Update()
    found = connection.execute(dependents(sql_folder(), name).encode()).fetchall()
    _refuse_others([row for row in found if not row["is_view"]])
    return _update_and_make_anew(connection, [row for row in found if row["is_view"]])


def _refuse_others(others: Sequence[dict[str, Any]]) -> None:
    if others:
        raise NotAllowed(
            f"{len(others)} object(s) of others depend on what the update changes",
            detail="\n".join(f"{row['statement']};  -- of {row['owner']}" for row in others[:MOST_SHOWN]),
            hint="Nothing was changed. Drop them by these statements, or have their owners change them, and try again.",
        )


def _update_and_make_anew(connection: Connection, views: Sequence[dict[str, Any]]) -> Update:
    lasting = [row for row in views if not row["schema"].startswith("pg_temp")]  # a session's own goes with it
    names = tuple(row["what"] for row in views)
    if not lasting:
        _drop_and_update(connection, views)
        return Update(names)
    dsn = _same_server(connection)
    programs = find_client_programs(connection.info.server_version // 10_000)
    kept = _dump(dsn, programs, lasting)
    is_updated = False
    try:
        with owner_sessions(dsn) as sessions:
            open_for_owners(sessions, kept)  # a server that refuses them must do so before anything is changed
            _drop_and_update(connection, views)
            is_updated = True
            left_out = tuple(load_live(sessions, dsn, programs, kept))
    except BaseException as error:
        if is_updated:
            raise _not_made_anew(kept, error) from error
        kept.unlink()
        raise
    if not left_out:
        kept.unlink()
    return Update(names, left_out, kept if left_out else None)


def _drop_and_update(connection: Connection, views: Sequence[dict[str, Any]]) -> None:
    with connection.transaction():
        for row in views:
            connection.execute(row["statement"].encode())
        update_extension(connection)


def _not_made_anew(kept: Path, error: BaseException) -> EasemlError:
    return EasemlError(
        "the extension is updated, but the views that stood in its way could not be made anew",
        detail=str(error) or type(error).__name__,
        hint=f"All of them are in {kept}: pg_restore -f - {kept} shows them. Let their owners make them.",
    )


def _same_server(connection: Connection) -> str:
    """Return the connection string of another session like this one."""
    given = connection.info.get_parameters()
    return make_conninfo(
        "", **{name: given[name] for name in SAME_SERVER if name in given}, password=connection.info.password or None
    )


def _dump(dsn: str, programs: Path, views: Sequence[dict[str, Any]]) -> Path:
    """Write the definitions of views, with their rights, triggers and comments, into a file that only we can read."""
    number, path = tempfile.mkstemp(prefix="easeml-views-", suffix=".dump")
    os.close(number)
    target, environment = without_password(dsn, os.environ)
    chosen = [f"--table={row['schema']}.{row['name']}" for row in views]  # both are quoted where a pattern needs it
    run_program([programs / "pg_dump", "--format=custom", f"--file={path}", *chosen, f"--dbname={target}"], environment)
    return Path(path)
