"""easeml coordinator and install: the same for a server that exists already."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path

import click

from easeml_db.cli.connection import dsn_option, dsn_or_embedded
from easeml_db.cli.output import say
from easeml_db.errors import InvalidArgument
from easeml_db.local.binaries import find_binaries
from easeml_db.local.server import prepare_database
from easeml_db.local.service import serve
from easeml_db.postgres import extension_files
from easeml_db.postgres.connection import connect_now, server_error
from easeml_db.postgres.executor import UNIT_LEASE_SECONDS
from easeml_db.words.visible_text import visible


@click.command()
@dsn_option
@click.option("--until-idle", is_flag=True, help="End when no run is open, instead of waiting for the next.")
@click.option(
    "--unit-lease-seconds",
    type=click.FloatRange(1.0),
    envvar="EASEML_UNIT_LEASE_SECONDS",
    default=UNIT_LEASE_SECONDS,
    show_default=True,
    help="How long a unit may show no sign of life before it is cancelled, and its slot given up if that fails.",
)
def coordinator(dsn: str | None, until_idle: bool, unit_lease_seconds: float) -> None:
    """Run a coordinator in the foreground: it trains what easeml.select_models asks for.

    Its role must be a member of easeml_coordinator. A second one waits as standby.
    """

    def log(text: str) -> None:
        stamp = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        say(f"{stamp} {visible(text)}", err=True)

    asyncio.run(serve(dsn_or_embedded(dsn), log, until_idle=until_idle, unit_lease_seconds=unit_lease_seconds))


@click.command()
@click.option("--dsn", envvar="EASEML_DSN", help="Superuser's connection string of the database to install into.")
@click.option(
    "--slots",
    "n_slots",
    type=click.IntRange(1, 1000),
    help="Units that run side by side (default: one for each core).",
)
@click.option("--files-only", is_flag=True, help="Only copy the extension's files to the server's share folder.")
@click.option(
    "--bindir",
    type=click.Path(path_type=Path, exists=True),
    help="Folder of the server's pg_config (default: the newest with PL/Python).",
)
def install(dsn: str | None, n_slots: int | None, files_only: bool, bindir: Path | None) -> None:
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
            prepare_database(connection, n_slots=n_slots)
        except psycopg.Error as error:
            raise server_error(error) from error
    say("installed; check with: easeml doctor --dsn ..., then run: easeml coordinator --dsn ...")


COMMANDS = (coordinator, install)
