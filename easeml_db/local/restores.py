"""A backup becomes a database: made beside the one that it replaces, checked, and put in its place at the end.

So an interrupted restore leaves nothing; one that is killed leaves a database of another name and roles that cannot log
in, which the next one drops or completes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db import __version__
from easeml_db.errors import EasemlError, InvalidArgument, NotAllowed, VersionMismatch
from easeml_db.local.by_owner.loading import LeftOut, load_by_owner
from easeml_db.local.by_owner.updates import update_beside_views
from easeml_db.local.database_contents import contents_of
from easeml_db.local.dump_files import Dump, read_dump, without_password
from easeml_db.local.restore_places import (
    check_unused,
    drop,
    give_rights,
    is_half_dropped,
    let_in,
    make_beside,
    only_restore,
    options_of,
    put_in_place,
    remark_of,
    rights_of,
)
from easeml_db.local.restored_roles import check_roles, complete_roles, drop_unfinished_roles, make_roles
from easeml_db.postgres.connection import connect_now, server_error
from easeml_db.postgres.versions import check_available, is_older

Connection = psycopg.Connection[dict[str, Any]]
TABLES = """SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'm')"""
MOST_SHOWN = 20
CREATE_FORMER = sql.SQL("CREATE EXTENSION easeml VERSION {} CASCADE")


class Restored(NamedTuple):
    """The result of a restore."""

    database: str
    dump: Dump
    check: str
    new_roles: tuple[str, ...]
    other_groups: tuple[tuple[str, str], ...]
    """Memberships of new roles that the dump names and nobody granted: role and group."""
    left_out: tuple[LeftOut, ...] = ()


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
        check_roles(session, dump.roles)
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
    beside, rights = make_beside(connection, name, options)
    try:
        new_roles, other_groups = make_roles(connection, dump.roles)
        check, left_out = _fill(make_conninfo(dsn, dbname=beside), programs, dump, n_jobs, allow_missing)
        if options is not None:
            _check_empty(connection, dsn, name)
        give_rights(connection, beside, rights_of(connection, name, beside) or rights)
        if options is not None:
            drop(connection, name, force=ends_sessions)
        with connection.transaction():
            complete_roles(connection, dump.roles, new_roles)
            put_in_place(connection, beside, name, remark)
            let_in(connection, name, new_roles)
    except BaseException:
        drop(connection, beside, force=True)
        drop_unfinished_roles(connection, dump.roles)
        raise
    return Restored(name, dump, check, new_roles, other_groups, left_out)


def _fill(dsn: str, programs: Path, dump: Dump, n_jobs: int, allow_missing: bool) -> tuple[str, tuple[LeftOut, ...]]:
    """Load the rows, update an older extension, and check that everything is there; return what was found, and what
    owners could not restore.
    """
    is_former = is_older(dump.version, __version__)
    if is_former:
        # It checks foreign keys row by row, so its tables come in order; its extension and schema are there before.
        with connect_now(dsn) as connection:
            connection.execute(CREATE_FORMER.format(sql.Literal(dump.version)))
    left_out = load_by_owner(
        dsn, programs, dump.path, n_jobs=1 if is_former else n_jobs, leaves="easeml" if is_former else ""
    )
    with connect_now(dsn) as connection:
        left_out += update_beside_views(connection).left_out
        (row,) = connection.execute("SELECT easeml.finish_restore(%s) AS said", [allow_missing]).fetchall()
        _analyze(connection)
    if left_out and not allow_missing:
        raise EasemlError(
            f"{dump.path}: {len(left_out)} object(s) could not be restored with the rights of their owners",
            detail="\n".join(map(str, left_out[:MOST_SHOWN])),
            hint="Nothing was changed. Restore without them: --allow-missing.",
        )
    return str(row["said"]), tuple(left_out)


def _analyze(connection: Connection) -> None:
    """Give the planner its statistics. An owner's index expression that fails must not fail the restore."""
    for row in connection.execute(TABLES).fetchall():
        with contextlib.suppress(psycopg.Error):
            connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(*row.values())))


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
