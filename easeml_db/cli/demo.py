"""easeml demo: the main job from nothing to predictions, with the SQL that does it."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from easeml_db.cli.connection import data_option, database, embedded
from easeml_db.cli.demo_subjects import SUBJECTS, Subject
from easeml_db.cli.load import progress_bar
from easeml_db.cli.output import print_rows
from easeml_db.cli.picture import duration, telling_configs
from easeml_db.cli.server import server_facts, wait_for_coordinator
from easeml_db.cli.statements import Connection, Row, rows
from easeml_db.cli.watch import watch_run
from easeml_db.db.connection import connect_now
from easeml_db.embedded import Embedded
from easeml_db.errors import TrialFailed
from easeml_loaders import column_types, load_table

N_SLOTS = 2


@click.command()
@click.argument("dataset", type=click.Choice(list(SUBJECTS)), default="digits")
@data_option
@click.option("--slots", "n_slots", type=click.IntRange(2, 1000), help="Units that run side by side.  [default: 2]")
def demo(dataset: str, folder: Path | None, n_slots: int | None) -> None:
    """Select models on a real data set in a private PostgreSQL, and predict with the best.

    Shows every SQL statement that it executes. What an earlier demo left is used again; each demo trains a new run.
    """
    server, talk = embedded(folder), Talk(SUBJECTS[dataset])
    _start(server, n_slots, talk)
    with database(server.dsn()) as connection:
        connection.execute("SET client_min_messages = warning")
        _provide_rows(connection, server, talk)
        _provide_dataset(connection, talk)
        run_id = _train(connection, server, talk)
        _show_leaderboard(connection, run_id, talk)
        _predict(connection, talk)
    _say_goodbye(server, run_id, talk)


COMMANDS = (demo,)


class Talk:
    """Prints what happens, and the statements that make it happen, ready to be copied."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._console = Console(soft_wrap=True, highlight=False)
        self._n_steps = 0

    def step(self, title: str) -> None:
        """Begin a step."""
        self._n_steps += 1
        self._console.print(Text(f"\n{self._n_steps}. {title}", style="bold"))

    def note(self, text: str, style: str = "dim") -> None:
        """Add a line to the step."""
        self._console.print(Text(text, style=style))

    def execute(self, connection: Connection, name: str, **values: object) -> list[Row]:
        """Print a statement of the subject, execute it, return its rows."""
        statement = self.subject.statement(name, **values)
        self._console.print(Text(f"{statement};", style="cyan"))
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def _start(server: Embedded, n_slots: int | None, talk: Talk) -> None:
    talk.step("A private PostgreSQL with the extension, and a coordinator beside it")
    started_seconds = time.monotonic()
    server.start()
    server.prepare()
    with connect_now(server.dsn()) as connection:
        n_there = len(rows(connection, "slots"))
    if n_slots is not None or n_there < N_SLOTS:
        server.prepare(n_slots=n_slots or N_SLOTS)
    server.start_coordinator()
    wait_for_coordinator(server)
    talk.note(f"{server.folder}, {server_facts(server)['n_slots']} slots, up in {_since(started_seconds)}")


def _provide_rows(connection: Connection, server: Embedded, talk: Talk) -> None:
    subject = talk.subject
    talk.step(f"{subject.title} in ordinary tables; some rows are kept aside for the end")
    talk.execute(connection, "schema")
    if column_types(server.dsn(), subject.all_rows):
        talk.note(f"{subject.all_rows} is there from before")
    else:
        started_seconds = time.monotonic()
        with progress_bar(subject.all_rows) as progress:
            loaded = load_table(server.dsn(), subject.source(), subject.all_rows, progress=progress)
        talk.note(f"loaded {loaded.n_rows} rows into {subject.all_rows} in {_since(started_seconds)}")
    for name in ("known_rows", "new_rows"):
        talk.execute(connection, name)


def _provide_dataset(connection: Connection, talk: Talk) -> None:
    talk.step("A data set: shuffled, split and packed into 4 partitions, inside the database")
    sources = {row["dataset_name"]: row["source"] for row in rows(connection, "datasets")}
    while sources.get(talk.subject.dataset, talk.subject.known_rows) != talk.subject.known_rows:
        talk.subject = talk.subject.renamed()  # a data set of that name was made from something else
    if talk.subject.dataset in sources:
        talk.note(f"data set {talk.subject.dataset} is there from before")
        return
    started_seconds = time.monotonic()
    talk.execute(connection, "create_dataset")
    talk.note(f"packed in {_since(started_seconds)}")


def _train(connection: Connection, server: Embedded, talk: Talk) -> int:
    talk.step("A run: 8 configs of 2 architectures hop over the partitions")
    run_id = int(talk.execute(connection, "select_models")[0]["run_id"])
    run = watch_run(server.dsn(), run_id, is_transient=True).run
    if run["state"] != "finished":
        raise TrialFailed(f"run {run_id} is {run['state']}: {run['failure_reason'] or 'somebody stopped it'}")
    talk.note(f"run {run_id} finished: {run['n_units_done']} units in {duration(run['elapsed_seconds'])}", "green")
    return run_id


def _show_leaderboard(connection: Connection, run_id: int, talk: Talk) -> None:
    talk.step("The leaderboard")
    trials = talk.execute(connection, "leaderboard", run_id=run_id)
    configs = telling_configs(trials)  # what differs; psql shows all of it
    shown = [{**trial, "config": config} for trial, config in zip(trials, configs, strict=True)]
    print_rows(shown, as_json=False, empty="", is_folded=False)


def _predict(connection: Connection, talk: Talk) -> None:
    talk.step("Predictions by the best trial, for rows that it has never seen")
    print_rows(talk.execute(connection, "predict"), as_json=False, empty="")
    talk.step("And for all of them at once")
    connection.execute(talk.subject.statement("drop_predictions").encode())
    talk.execute(connection, "predict_table")
    print_rows(talk.execute(connection, "accuracy"), as_json=False, empty="")


def _say_goodbye(server: Embedded, run_id: int, talk: Talk) -> None:
    talk.step("Go on by hand")
    command = "easeml" if shutil.which("easeml") else str(Path(sys.argv[0]).absolute())
    talk.note(server_facts(server)["psql"], "cyan")
    for arguments, purpose in (
        (f"leaderboard {run_id}", "this run again"),
        ("doctor", "looks whether all is well"),
        ("down", "stops server and coordinator; the data stays"),
    ):
        talk.note(f"{command} {arguments:<14} {purpose}")


def _since(started_seconds: float) -> str:
    return f"{time.monotonic() - started_seconds:.1f} s"
