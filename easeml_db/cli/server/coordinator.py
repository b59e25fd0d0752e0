"""easeml coordinator and install: what easeml up does, but for a server that exists already."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import click

from easeml_db.cli.server.server import say_update
from easeml_db.cli.terminal.arguments import slots_option
from easeml_db.cli.terminal.connection import dsn_option, dsn_or_embedded
from easeml_db.cli.terminal.listing import listing
from easeml_db.cli.terminal.output import say
from easeml_db.errors import InvalidArgument
from easeml_db.local.binaries import find_binaries
from easeml_db.local.journal import Journal
from easeml_db.local.lock_rights import close_locks as take_lock_rights
from easeml_db.local.lock_rights import open_rights
from easeml_db.local.log_files import keep_short
from easeml_db.local.preparation import prepare_database
from easeml_db.local.service import serve
from easeml_db.postgres import extension_files
from easeml_db.postgres.connection import connect_now, server_error
from easeml_db.postgres.slots.executor import UNIT_LEASE_SECONDS

# A thread that converts rows or pickles questions gives way to the loop after this time, not after Python's 5 ms.
SWITCH_SECONDS = 0.0005


@click.command()
@dsn_option
@click.option("--until-idle", is_flag=True, help="End when no run is open, instead of waiting for the next run.")
@click.option(
    "--unit-lease-seconds",
    type=click.FloatRange(1.0),
    envvar="EASEML_UNIT_LEASE_SECONDS",
    default=UNIT_LEASE_SECONDS,
    show_default=True,
    help="How long a unit may show no sign of life before it is cancelled, and its slot given up if that fails.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    envvar="EASEML_METRICS_PORT",
    help="Answer http://127.0.0.1:PORT/metrics with numbers for Prometheus (default: off).",
)
@click.option(
    "--log-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Log into a file of 10 MB; four older ones are kept (default: standard error).",
)
@click.option("--log-json", is_flag=True, help="Log JSON lines, with run and trial.")
@click.option("--logs-of", "private", type=click.Path(path_type=Path), hidden=True)
@click.option("--log-units", is_flag=True, help="Log each recorded unit, too.")
def coordinator(
    dsn: str | None,
    until_idle: bool,
    unit_lease_seconds: float,
    metrics_port: int | None,
    log_file: Path | None,
    log_json: bool,
    log_units: bool,
    private: Path | None,
) -> None:
    """Run a coordinator in the foreground: it trains the runs that easeml.select_models starts.

    Its role must be a member of easeml_coordinator. A second coordinator waits as standby.
    """
    if private is not None:  # the coordinator of easeml up keeps the logs of its folder short
        keep_short(private)
    journal = Journal(log_file, is_json=log_json, has_units=log_units)
    serving = serve(
        dsn_or_embedded(dsn), journal, until_idle=until_idle, unit_lease_seconds=unit_lease_seconds,
        metrics_port=metrics_port,
    )  # fmt: skip
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()  # what is imported stays: to look for garbage among it holds the loop for tens of milliseconds
    asyncio.run(serving)


health = listing(
    "health",
    "Show the health of the service: coordinator, open runs, slots, and counters since the coordinator began.",
    empty="nothing", columns={
        "is_alive": "alive", "heartbeat_age_seconds": "heartbeat s", "n_queued_runs": "queued",
        "n_running_runs": "running", "oldest_queued_seconds": "waits s", "n_slots": "slots", "n_busy_slots": "busy",
        "n_lost_slots": "lost", "longest_unit_seconds": "unit s", "units_recorded": "recorded",
        "units_failed": "failed", "units_lost": "lost units",
    },
)  # fmt: skip


@click.command()
@click.option("--dsn", envvar="EASEML_DSN", help="Superuser's connection string of the database to install into.")
@slots_option
@click.option("--files-only", is_flag=True, help="Only copy the extension's files to the server's share folder.")
@click.option(
    "--bindir",
    type=click.Path(path_type=Path, exists=True),
    help="Folder of the server's pg_config (default: the newest with PL/Python).",
)
@click.option(
    "--close-locks", is_flag=True, help="Take from PUBLIC what lets any role fill the server's lock table (see doctor)."
)
def install(dsn: str | None, n_slots: int | None, files_only: bool, bindir: Path | None, close_locks: bool) -> None:
    """Install the extension into a server on this machine: its files, the extension, a coordinator role, slots."""
    changed = extension_files.install(bindir or find_binaries())
    say("\n".join(f"wrote {path}" for path in changed) or "extension files are current")
    if files_only:
        return
    if not dsn:
        raise InvalidArgument("install needs --dsn (or EASEML_DSN), or --files-only")
    import psycopg

    with connect_now(dsn) as connection:
        try:
            update = prepare_database(connection, n_slots=n_slots)
            if close_locks:
                take_lock_rights(connection)
            n_open = len(open_rights(connection))
        except psycopg.Error as error:
            raise server_error(error) from error
    say_update(update)
    if n_open:
        say("any role can fill the server's lock table: easeml doctor says how to close that, or --close-locks does it")
    say("installed; check with: easeml doctor --dsn ..., then run: easeml coordinator --dsn ...")


COMMANDS = (coordinator, health, install)
