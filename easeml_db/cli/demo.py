"""easeml demo: the main job from nothing to predictions, with the SQL that does it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from psycopg import sql
from rich.console import Console
from rich.text import Text

from easeml_db.cli.connection import data_option, database, embedded
from easeml_db.cli.load import one_line_errors, progress_bar
from easeml_db.cli.output import print_rows
from easeml_db.cli.picture import duration, telling_configs
from easeml_db.cli.server import server_facts, wait_for_coordinator
from easeml_db.cli.statements import Connection, Row, rows
from easeml_db.cli.watch import watch_run
from easeml_db.db.connection import connect_now
from easeml_db.db.queries import queries
from easeml_db.embedded import Embedded
from easeml_db.errors import NotReady
from easeml_loaders import Source, bundled_source, fashion_mnist_source, load_table

N_SLOTS = 2


@dataclass(frozen=True)
class Subject:
    """A data set to show: where its rows come from, which are kept aside, and what is tried on it."""

    table: str
    rows: Callable[[], Source]
    known: str
    held_out: str
    column: str
    more: str
    search: str
    max_epochs: int


DIGITS = Subject(
    table="digits", rows=lambda: bundled_source("digits"), known="id % 6 <> 0", held_out="id % 6 = 0",
    column="pixels", more="", max_epochs=8,
    search='{"learning_rate": {"type": "float", "low": 1e-3, "high": 1e-2, "log": true}, "batch_size": [32, 64]}',
)  # fmt: skip
FASHION = Subject(
    table="fashion_mnist", rows=fashion_mnist_source, known="NOT is_test", held_out="is_test",
    column="image", more=", input_shape => '{28,28}'", max_epochs=3,
    search='{"learning_rate": {"type": "float", "low": 5e-4, "high": 5e-3, "log": true}, "batch_size": [128, 256]}',
)  # fmt: skip
SUBJECTS = {"digits": DIGITS, "fashion-mnist": FASHION}


@click.command()
@click.argument("dataset", type=click.Choice(list(SUBJECTS)), default="digits")
@data_option
@click.option("--slots", "n_slots", type=click.IntRange(2, 1000), help="Units that run side by side.  [default: 2]")
def demo(dataset: str, folder: Path | None, n_slots: int | None) -> None:
    """Select models on a real data set in a private PostgreSQL, and predict with the best: the SQL and what it does.

    What an earlier demo left is used again; every demo trains a new run.
    """
    server = embedded(folder)
    talk = Talk()
    talk.say("A private PostgreSQL")
    _start(server, n_slots, talk)
    with one_line_errors(), database(server.dsn()) as connection:
        name = _provide_data(connection, server, SUBJECTS[dataset], talk)
        run_id = _train(connection, name, SUBJECTS[dataset], server, talk)
        _show_leaderboard(connection, run_id, talk)
        _predict(connection, name, SUBJECTS[dataset], talk)
    _say_goodbye(server, run_id, talk)


COMMANDS = (demo,)


class Talk:
    """Prints what happens, and the statements that make it happen, ready to be copied."""

    def __init__(self) -> None:
        self.console = Console(soft_wrap=True, highlight=False)
        self._n = 0

    def say(self, title: str) -> None:
        """Begin a step."""
        self._n += 1
        self.console.print(Text(f"\n{self._n}. {title}", style="bold"))

    def note(self, text: str) -> None:
        """Add a line to the step."""
        self.console.print(Text(f"   {text}", style="dim"))

    def execute(self, connection: Connection, name: str, **names: str) -> list[Row]:
        """Print a statement of queries/demo.sql, execute it, return its rows."""
        statement = queries("demo")[name].format(**names)
        self.console.print(Text("\n".join(f"   {line}" for line in f"{statement};".splitlines()), style="cyan"))
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def _start(server: Embedded, n_slots: int | None, talk: Talk) -> None:
    started_seconds = time.monotonic()
    server.start()
    server.prepare()
    with connect_now(server.dsn()) as connection:
        n_there = len(rows(connection, "slots"))
    if n_slots is not None or n_there < N_SLOTS:
        server.prepare(n_slots=n_slots or N_SLOTS)
    server.start_coordinator()
    wait_for_coordinator(server)
    facts = server_facts(server)
    talk.note(f"in {facts['folder']}, {facts['n_slots']} slots, coordinator process {facts['coordinator_pid']}")
    talk.note(f"ready after {time.monotonic() - started_seconds:.1f} s (easeml up does the same)")
