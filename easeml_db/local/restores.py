"""A backup becomes a database: made beside the one that it replaces, checked, and put in its place at the end.

So an interrupted restore leaves nothing; one that is killed leaves a database of another name and roles without rights,
which the next one drops or completes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db import __version__
from easeml_db.errors import EasemlError, InvalidArgument, NotAllowed, VersionMismatch
from easeml_db.local.database_contents import contents_of
from easeml_db.local.dump_files import Dump, read_dump, run_program, without_password
from easeml_db.local.restore_places import (
    check_unused,
    drop,
    is_half_dropped,
    let_in,
    make_beside,
    only_restore,
    options_of,
    put_in_place,
    remark_of,
)
from easeml_db.local.restored_roles import complete_roles, drop_unfinished_roles, make_roles
from easeml_db.postgres.connection import connect_now, server_error
from easeml_db.postgres.versions import check_available, is_older, update_extension

Connection = psycopg.Connection[dict[str, Any]]
CREATE_FORMER = sql.SQL("CREATE EXTENSION easeml VERSION {} CASCADE")


class Restored(NamedTuple):
    """The result of a restore."""

    database: str
    dump: Dump
    check: str
    new_roles: tuple[str, ...]
    other_groups: tuple[tuple[str, str], ...]
    """Memberships of new roles that the dump names and nobody granted: role and group."""


def restore(
    dsn: str, programs: Path, path: Path, *, n_jobs: int, allow_missing: bool = False, ends_sessions: bool = False
) -> Restored:
    """Restore a backup into the database that a superuser's connection string names, and create it if necessary. The
    database must hold nobody's data. ends_sessions: end sessions in it instead of refusing. Raises InvalidData for a
    file that is not a backup, VersionMismatch, NotAllowed, EasemlError with what failed.
    """
    dump, name = check(dsn, programs, path)
    with _session(dsn) as connection, only_restore(connection):
        return _restore(connection, dsn, programs, dump, name, n_jobs, allow_missing, ends_sessions)


def check(dsn: str, programs: Path, path: Path) -> tuple[Dump, str]:
    """Refuse an impossible restore before anything is stopped or changed; return the dump and the database's name.
    Raises InvalidData for a file that is not a backup, VersionMismatch for a newer one, NotAllowed if rows exist.
    """
    dump = read_dump(programs, path)
    if is_older(__version__, dump.version):
        raise VersionMismatch(
            f"{path} was made with easeml {dump.version}, and this package is {__version__}, which is older",
            hint=f"Install that version or a newer one here: pip install 'easeml-db>={dump.version}'.",
        )
    without_password(dsn, {})  # refuses what cannot be handed on
    name = str(conninfo_to_dict(dsn).get("dbname") or "")
    if not name:
        raise InvalidArgument("--dsn names no database", hint="Add the one to restore into: dbname=NAME.")
    with _session(dsn) as session, only_restore(session):
        if options_of(session, name) is not None:
            _check_empty(session, dsn, name)
    return dump, name


@contextmanager
def _session(dsn: str) -> Iterator[Connection]:
    """Open a session beside the database that is restored; the server's errors come out as the project's."""
    with connect_now(make_conninfo(dsn, dbname="postgres"), "easeml restore") as connection:
        try:
            yield connection
        except psycopg.Error as error:
            raise server_error(error) from error


def _restore(
    connection: Connection, dsn: str, programs: Path, dump: Dump, name: str, n_jobs: int, allow_missing: bool,
    ends_sessions: bool,
) -> Restored:  # fmt: skip
    check_available(connection, dump.version)
    options = options_of(connection, name)
    if options is not None:
        if not ends_sessions:
            check_unused(connection, name, "Stop its coordinator and close its sessions, then restore again.")
        _check_empty(connection, dsn, name)
    remark = remark_of(connection, name)
    beside = make_beside(connection, name, options)
    try:
        new_roles = make_roles(connection, dump.roles)
        check = _fill(make_conninfo(dsn, dbname=beside), programs, dump, n_jobs, allow_missing)
        if options is not None:
            _check_empty(connection, dsn, name)
            drop(connection, name, force=ends_sessions)
        with connection.transaction():
            other_groups = complete_roles(connection, dump.roles, new_roles)
            put_in_place(connection, beside, name, remark)
            let_in(connection, name, new_roles)
    except BaseException:
        drop(connection, beside, force=True)
        drop_unfinished_roles(connection, dump.roles)
        raise
    return Restored(name, dump, check, new_roles, other_groups)


def _fill(dsn: str, programs: Path, dump: Dump, n_jobs: int, allow_missing: bool) -> str:
    """Load the rows, update an older extension, and check that everything is there; return what was found."""
    command: list[str | Path] = [programs / "pg_restore", "--exit-on-error"]
    is_former = is_older(dump.version, __version__)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", errors="surrogateescape", prefix="easeml-restore-"
    ) as listed:
        if is_former:
            # It checks foreign keys row by row, so its tables come in order; its extension and schema are there before.
            with connect_now(dsn) as connection:
                connection.execute(CREATE_FORMER.format(sql.Literal(dump.version)))
            entries = run_program([programs / "pg_restore", "--list", dump.path]).split("\n")
            listed.write("\n".join(entry for entry in entries if " SCHEMA - easeml " not in entry))
            listed.flush()
            command += [f"--use-list={listed.name}"]
        else:
            command += [f"--jobs={n_jobs}"]
        target, environment = without_password(dsn, os.environ)
        try:
            run_program([*command, f"--dbname={target}", dump.path], environment)
        except EasemlError as error:
            hint = "Nothing was changed. Mend what it names, and restore again."
            raise EasemlError(f"{dump.path} could not be restored", detail=error.detail, hint=hint) from error
    with connect_now(dsn) as connection:
        update_extension(connection)
        (row,) = connection.execute("SELECT easeml.finish_restore(%s) AS said", [allow_missing]).fetchall()
        connection.execute("ANALYZE")
    return str(row["said"])


def _check_empty(connection: Connection, dsn: str, name: str) -> None:
    if is_half_dropped(connection, name):
        return
    with connect_now(dsn) as session:
        contents = contents_of(session)
    if contents:
        raise NotAllowed(
            f"database {name!r} is in use: it has {', '.join(contents)}, and a backup is restored into an empty one",
            hint="Restore into another: easeml restore FILE --dsn 'dbname=NEW ...', or easeml up --data NEW_FOLDER and"
            " --data NEW_FOLDER here.",
        )
