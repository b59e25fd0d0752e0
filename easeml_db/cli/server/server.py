"""easeml up, down, destroy, status, psql, logs: the private server."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click
from psycopg.conninfo import make_conninfo

from easeml_db.cli.terminal.arguments import slots_option
from easeml_db.cli.terminal.connection import data_option, embedded
from easeml_db.cli.terminal.output import INTERRUPTED, json_option, print_json, say
from easeml_db.errors import EasemlError, NotAllowed, NotFound
from easeml_db.local.by_owner.updates import Update
from easeml_db.local.folder_contents import LOGS
from easeml_db.local.folder_lock import alone
from easeml_db.local.log_files import Tail, last_lines
from easeml_db.local.nodes import nodes_of, remove_nodes, start_nodes, stop_nodes
from easeml_db.local.server import Embedded
from easeml_db.local.waiting import wait_for_coordinator
from easeml_db.postgres.connection import connect_now

FOLLOW_SECONDS = 0.2


@click.command()
@data_option
@slots_option
@click.option("--port", type=click.IntRange(1024, 65535), help="Port on the loopback address (default: a free one).")
@json_option
def up(folder: Path | None, n_slots: int | None, port: int | None, as_json: bool) -> None:
    """Start a private PostgreSQL with easeml in it, and the coordinator. Does nothing if they already run."""
    server = embedded(folder)
    with alone_with(server, server.prepare_folders):
        if nodes_of(server):
            start_nodes(server, nodes_of(server))
        server.start(port=port)
        say_update(server.prepare(n_slots=n_slots))
        server.start_coordinator()
        wait_for_coordinator(server)
    _print_status(server, as_json)


@click.command()
@data_option
def down(folder: Path | None) -> None:
    """Stop the coordinator and the private server. Runs under way go on at the next easeml up."""
    server = embedded(folder)
    with alone_with(server, lambda: server.facts):  # says so when there is none
        server.stop()
        stop_nodes(server)
    say(f"stopped; the data stays in {server.folder}")


@click.command()
@data_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def destroy(folder: Path | None, yes: bool) -> None:
    """Remove the private server with all its data. It asks first."""
    server = embedded(folder)
    server.facts  # noqa: B018
    if not yes:
        click.confirm(f"Remove the private server in {server.folder} with all its data?", abort=True)
    with alone_with(server, lambda: server.facts):
        server.stop()
        remove_nodes(server)
        server.remove()
        _check_removed(server.folder)
    say(f"removed {server.folder}")


@click.command()
@data_option
@json_option
def status(folder: Path | None, as_json: bool) -> None:
    """Show whether the private server and its coordinator run, and how to reach them."""
    server = embedded(folder)
    server.facts  # noqa: B018
    _print_status(server, as_json)


@click.command(context_settings={"ignore_unknown_options": True})
@data_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def psql(folder: Path | None, arguments: tuple[str, ...]) -> None:
    """Open psql on the private server; further arguments are psql's own."""
    server = embedded(folder)
    # A tenant who may create schemas could make one of the superuser's name, which "$user" would search first.
    dsn = make_conninfo(server.dsn(), options="-c search_path=public")
    client = Path(server.facts["binaries"]) / "psql"
    if not client.exists():
        raise NotFound(f"there is no {client}", hint="Install PostgreSQL's client package.")
    os.execv(client, ["psql", dsn, *arguments])


@click.command()
@data_option
@click.option(
    "--lines",
    "-n",
    "n_lines",
    type=click.IntRange(0),
    default=40,
    show_default=True,
    help="How many lines of each log.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on with what is written, until Ctrl+C.")
def logs(folder: Path | None, n_lines: int, follow: bool) -> None:
    """Show the ends of the server's and the coordinator's logs."""
    server = embedded(folder)
    server.facts  # noqa: B018
    paths = [server.folder / name for name in LOGS]
    tails = {path: Tail(path) for path in paths}
    for path in paths:
        say(f"==> {path}")
        if lines := last_lines(path, n_lines):
            say(lines)
    if follow:
        _follow(tails, paths[-1])


def _follow(tails: Mapping[Path, Tail], last: Path) -> None:
    try:
        while True:
            for path, tail in tails.items():
                if lines := tail.more():
                    say("\n".join([*([] if path == last else [f"==> {path}"]), *lines]))
                    last = path
            time.sleep(FOLLOW_SECONDS)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _check_removed(folder: Path) -> None:
    if folder.exists():
        left = ", ".join(sorted(path.name for path in folder.iterdir())[:3]) or "nothing"
        raise NotAllowed(
            f"{folder} could not be removed whole: it holds {left}", hint="See what is left in it, and whose."
        )


COMMANDS = (up, down, destroy, status, psql, logs)


def alone_with(server: Embedded, check: Callable[[], object]) -> AbstractContextManager[None]:
    """Keep other commands that start, stop or remove a private server waiting during a block. check: as in `alone`."""
    notice = f"another command works on {server.folder}; this one waits for it"
    return alone(server.folder, check, lambda: say(notice, err=True))


def say_update(update: Update) -> None:
    """Tell what an update of the extension did to users' views, beside the answer of a command."""
    for view in update.views:
        say(f"dropped, and made anew if it outlasts its session: {view}", err=True)
    for left in update.left_out:
        say(f"not made anew: {left}; its definition: pg_restore -f - {update.kept}", err=True)


def _print_status(server: Embedded, as_json: bool) -> None:
    facts = server_facts(server)
    if as_json:
        print_json(facts)
        return
    say(f"server       {'running' if facts['is_running'] else 'stopped'}, port {facts['port']}, {facts['folder']}")
    say(
        f"coordinator  {'running, process ' + str(facts['coordinator_pid']) if facts['coordinator_pid'] else 'stopped'}"
    )
    if facts["is_running"]:
        say(f"slots        {facts['n_slots']}")
        say(f"connect      {facts['psql']}")
    else:
        say(f"start with   easeml up --data {shlex.quote(facts['folder'])}")


def server_facts(server: Embedded) -> dict[str, Any]:
    """Return the report of easeml status about a private server."""
    is_running = server.is_running()
    facts: dict[str, Any] = {
        "folder": str(server.folder), "is_running": is_running, "port": server.port,
        "coordinator_pid": server.coordinator_pid(), "dsn": server.dsn(), "n_slots": None,
    }  # fmt: skip
    facts["psql"] = f"psql {shlex.quote(server.dsn())}"
    if is_running:
        try:
            with connect_now(server.dsn()) as connection:
                row = connection.execute("SELECT count(*) AS n FROM easeml.slots").fetchone()
                facts["n_slots"] = row["n"] if row else None
        except EasemlError:
            facts["is_running"] = False
    return facts
