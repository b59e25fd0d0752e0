"""easeml backup and restore: a whole database as one file, and back."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
import psycopg
from psycopg.conninfo import make_conninfo

from easeml_db.cli.server.server import alone_with
from easeml_db.cli.terminal.connection import data_option, dsn_option, embedded
from easeml_db.cli.terminal.output import json_option, print_json, say
from easeml_db.errors import NotReady
from easeml_db.local.backups import back_up
from easeml_db.local.binaries import find_client_programs
from easeml_db.local.lock_rights import close_private
from easeml_db.local.restores import check
from easeml_db.local.restores import restore as restore_file
from easeml_db.local.server import Embedded
from easeml_db.local.waiting import wait_for_coordinator
from easeml_db.postgres.connection import connect_now, not_a_connection_string

MOST_JOBS = 4
allow_missing_option = click.option(
    "--allow-missing",
    is_flag=True,
    help="Accept tables with fewer rows than the dump says, and leave out objects that their owners cannot make.",
)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@data_option
@dsn_option
@json_option
def backup(file: Path, overwrite: bool, folder: Path | None, dsn: str | None, as_json: bool) -> None:
    """Write the whole database into FILE: datasets, runs, states, tasks with their examples, and your own tables.

    FILE is a dump of pg_dump -Fc. Runs continue meanwhile. It does not contain passwords of roles.
    """
    began = time.monotonic()
    server = None if dsn else _running(folder)
    source = dsn or (server.dsn() if server else "")
    programs = _programs(server) if server else _programs_for(source)
    with _ended_by_sigterm():
        made = back_up(source, programs, file.absolute(), may_replace=overwrite)
    n_bytes = file.stat().st_size
    if as_json:
        print_json({"file": str(file), "n_bytes": n_bytes, "version": made.version, "n_rows": made.n_rows})
        return
    seconds = time.monotonic() - began
    say(f"{file}: {n_bytes / 1e6:,.1f} MB, {made.n_rows} rows of easeml {made.version}, in {seconds:.0f} s")


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--jobs", "n_jobs", type=click.IntRange(1, 64), help="Number of tables to load side by side.")
@allow_missing_option
@data_option
@dsn_option
@json_option
def restore(
    file: Path, n_jobs: int | None, allow_missing: bool, folder: Path | None, dsn: str | None, as_json: bool
) -> None:
    """Restore FILE of easeml backup (or pg_dump -Fc) into a database that holds nothing yet.

    The restored database is made beside that one, checked, and put in its place at the end; an interrupted restore can
    be run again. Missing roles are made, without passwords. A backup of the former version is updated to this one.
    """
    jobs = n_jobs or min(MOST_JOBS, len(os.sched_getaffinity(0)))
    if dsn:
        done = restore_file(dsn, _programs_for(dsn, dbname="postgres"), file, n_jobs=jobs, allow_missing=allow_missing)
    else:
        server = _running(folder)
        check(server.dsn(), _programs(server), file)  # a restore that is refused interrupts no run
        with alone_with(server, lambda: _running(folder)), _without_coordinator(server):
            done = restore_file(
                server.dsn(), _programs(server), file, n_jobs=jobs, allow_missing=allow_missing, ends_sessions=True
            )
            with connect_now(server.dsn()) as connection:
                close_private(connection)
    if as_json:
        print_json({"database": done.database, "version": done.dump.version, "check": done.check,
                    "new_roles": done.new_roles, "other_groups": done.other_groups,
                    "left_out": [left._asdict() for left in done.left_out]})  # fmt: skip
        return
    say(f"database {done.database}: {done.check}")
    if done.new_roles:
        say(f"new roles, without passwords: {', '.join(done.new_roles)}")
    for role, group in done.other_groups:
        say(f"not granted, since a group {group} may be another one here: role {role} was a member of it")
    for left in done.left_out:
        say(f"left out: {left}")
    if dsn:
        say("start its coordinator: easeml coordinator --dsn ...")


COMMANDS = (backup, restore)


def _running(folder: Path | None) -> Embedded:
    server = embedded(folder)
    if not server.is_running():
        raise NotReady(
            f"there is no running server in {server.folder}",
            hint=f"Start one: easeml up --data {shlex.quote(str(server.folder))}, or give --dsn.",
        )
    return server


def _programs_for(dsn: str, **parts: str) -> Path:
    try:
        target = make_conninfo(dsn, **parts)
    except psycopg.ProgrammingError as error:
        raise not_a_connection_string(error) from error
    with connect_now(target) as connection:
        return find_client_programs(connection.info.server_version // 10_000)


def _programs(server: Embedded) -> Path:
    return Path(server.facts["binaries"])


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM end a block as Ctrl+C does: it removes what it began, and its programs end with it."""

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the tidying up
        raise SystemExit(128 + number)

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


@contextmanager
def _without_coordinator(server: Embedded) -> Iterator[None]:
    """Stop the coordinator for a block, and start it again at the end, if it ran."""
    has_run = server.coordinator_pid() is not None
    server.stop_coordinator()
    try:
        yield
    finally:
        if has_run:
            server.prepare()
            server.start_coordinator()
            wait_for_coordinator(server)
