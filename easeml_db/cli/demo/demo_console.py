"""Shared by the demonstrations: a console that shows the SQL, starting the server, loading tables."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from easeml_db.cli.data.load import progress_bar
from easeml_db.cli.server.server import alone_with, server_facts
from easeml_db.cli.terminal.statements import Connection, Row, rows
from easeml_db.local.server import Embedded, default_folder
from easeml_db.local.waiting import wait_for_coordinator
from easeml_db.postgres.connection import connect_now
from easeml_loaders import Source, column_types, load_table

N_SLOTS = 2


class DemoConsole:
    """Prints what happens, and the statements that make it happen, ready to be copied."""

    def __init__(self) -> None:
        self._console = Console(soft_wrap=True, highlight=False)
        self._n_steps = 0

    def step(self, title: str) -> None:
        """Begin a step."""
        self._n_steps += 1
        self._console.print(Text(f"\n{self._n_steps}. {title}", style="bold"))

    def note(self, text: str, style: str = "dim") -> None:
        """Add a line to the step."""
        self._console.print(Text(text, style=style))

    def execute(self, connection: Connection, statement: str) -> list[Row]:
        """Print a statement, execute it, return its rows."""
        self.note(f"{statement};", style="cyan")
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def start_server(server: Embedded, n_slots: int | None, console: DemoConsole) -> None:
    """Start whatever is not running yet: server, extension, slots and coordinator."""
    console.step("A private PostgreSQL with the extension, and a coordinator beside it")
    started_seconds = time.monotonic()
    with alone_with(server, server.prepare_folders):
        server.start()
        server.prepare()
        with connect_now(server.dsn()) as connection:
            n_there = len(rows(connection, "slots"))
        if n_slots is not None or n_there < N_SLOTS:
            server.prepare(n_slots=n_slots or N_SLOTS)
        server.start_coordinator()
    wait_for_coordinator(server)
    console.note(f"{server.folder}, {server_facts(server)['n_slots']} slots, up in {since(started_seconds)}")


def provide_table(server: Embedded, source: Callable[[], Source], table: str, console: DemoConsole) -> None:
    """Load a table, unless it is there."""
    if column_types(server.dsn(), table):
        console.note(f"{table} is there from before")
        return
    started_seconds = time.monotonic()
    with progress_bar(table) as progress:
        loaded = load_table(server.dsn(), source(), table, progress=progress)
    console.note(f"loaded {loaded.n_rows} rows into {table} in {since(started_seconds)}")


def print_next_steps(server: Embedded, console: DemoConsole, *commands: tuple[str, str]) -> None:
    """Print what to do next: psql, these commands with their purposes, and how to stop everything."""
    console.step("Go on by hand")
    command = "easeml" if shutil.which("easeml") else str(Path(sys.argv[0]).absolute())
    console.note(server_facts(server)["psql"], "cyan")
    if server.folder != Path(os.environ.get("EASEML_DATA") or default_folder()):
        console.note(f"export EASEML_DATA={shlex.quote(str(server.folder))}", "cyan")
    steps = [
        *commands,
        ("doctor", "looks whether all is well"),
        ("down", "stops server and coordinator; the data stays"),
    ]
    width = max(len(arguments) for arguments, _ in steps)
    for arguments, purpose in steps:
        console.note(f"{command} {arguments:<{width}}  {purpose}")


def since(started_seconds: float) -> str:
    """Return the seconds since a moment of time.monotonic()."""
    return f"{time.monotonic() - started_seconds:.1f} s"
