"""easeml demo: the main job, from an empty server to predictions, with the SQL that does it."""

from __future__ import annotations

import time
from pathlib import Path

import click

from easeml_db.cli.demo.demo_cluster import NODES, add_nodes, cluster_subject, show_places, show_traffic
from easeml_db.cli.demo.demo_console import DemoConsole, print_next_steps, provide_table, since, start_server
from easeml_db.cli.demo.demo_subjects import SUBJECTS, Subject
from easeml_db.cli.demo.demo_tenants import show_tenants
from easeml_db.cli.search.run_snapshot import duration, telling_configs
from easeml_db.cli.search.watch import watch_run
from easeml_db.cli.terminal.connection import data_option, database, embedded
from easeml_db.cli.terminal.output import print_rows
from easeml_db.cli.terminal.statements import Connection, Row, rows
from easeml_db.errors import TrialFailed
from easeml_db.local.nodes import start_nodes
from easeml_db.local.server import Embedded, default_folder


@click.command()
@click.argument("dataset", type=click.Choice([*SUBJECTS, "tenants", "cluster"]), default="digits")
@data_option
@click.option("--slots", "n_slots", type=click.IntRange(2, 1000), help="Units that run side by side.  [default: 2]")
def demo(dataset: str, folder: Path | None, n_slots: int | None) -> None:
    """Select models on a real dataset in a private PostgreSQL, and predict with the best.

    With tenants, four roles share the database, and a policy decides whose arm opens next. With cluster, rows and
    states lie on two further private servers, and trials hop between them. Shows every SQL statement that it executes.
    It reuses what an earlier demo left; each demo trains a new run.
    """
    server = embedded(folder)
    if dataset == "tenants":
        show_tenants(server, n_slots)
    elif dataset == "cluster":
        cluster = embedded(folder or default_folder().with_name(f"{default_folder().name}-cluster"))
        start_nodes(cluster, NODES)
        _show_subject(cluster, None, SubjectConsole(cluster_subject()), has_nodes=True)
    else:
        _show_subject(server, n_slots, SubjectConsole(SUBJECTS[dataset]))


COMMANDS = (demo,)


def _show_subject(server: Embedded, n_slots: int | None, console: SubjectConsole, *, has_nodes: bool = False) -> None:
    start_server(server, n_slots, console)
    with database(server.dsn(), has_own_names=True) as connection:
        connection.execute("SET client_min_messages = warning")
        if has_nodes:
            add_nodes(connection, console)
        _provide_rows(connection, server, console)
        _provide_dataset(connection, console)
        if has_nodes:
            show_places(connection, console.subject.dataset, console)
        run_id = _train(connection, server, console)
        _show_leaderboard(connection, run_id, console)
        if has_nodes:
            show_traffic(connection, run_id, console)
        _predict(connection, console)
    print_next_steps(server, console, (f"run leaderboard {run_id}", "this run again"))


class SubjectConsole(DemoConsole):
    """Executes and shows the statements about a subject."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.subject = subject

    def say(self, connection: Connection, name: str, **values: object) -> list[Row]:
        """Print a statement of the subject, execute it, return its rows."""
        return self.execute(connection, self.subject.statement(name, **values))


def _provide_rows(connection: Connection, server: Embedded, console: SubjectConsole) -> None:
    subject = console.subject
    console.step(f"{subject.title} in ordinary tables; some rows are kept aside for the end")
    console.say(connection, "schema")
    provide_table(server, subject.source, subject.all_rows, console)
    for name in ("known_rows", "new_rows"):
        console.say(connection, name)


def _provide_dataset(connection: Connection, console: SubjectConsole) -> None:
    console.step("A dataset: shuffled, split and packed into 4 partitions, inside the database")
    mine = [row for row in rows(connection, "datasets") if row["tenant"] == connection.info.user]
    sources = {row["dataset_name"]: row["source"] for row in mine}
    while sources.get(console.subject.dataset, console.subject.known_rows) != console.subject.known_rows:
        console.subject = console.subject.renamed()  # a dataset of that name was made from something else
    if console.subject.dataset in sources:
        console.note(f"dataset {console.subject.dataset} is there from before")
        return
    started_seconds = time.monotonic()
    console.say(connection, "create_dataset")
    console.note(f"packed in {since(started_seconds)}")


def _train(connection: Connection, server: Embedded, console: SubjectConsole) -> int:
    console.step("A run: 8 configs of 2 architectures hop over the partitions")
    run_id = int(console.say(connection, "select_models")[0]["run_id"])
    run = watch_run(server.dsn(), run_id, is_transient=True).run
    if run["status"] != "finished":
        raise TrialFailed(f"run {run_id} is {run['status']}: {run['failure_reason'] or 'somebody stopped it'}")
    console.note(f"run {run_id} finished: {run['n_units_done']} units in {duration(run['elapsed_seconds'])}", "green")
    return run_id


def _show_leaderboard(connection: Connection, run_id: int, console: SubjectConsole) -> None:
    console.step("The leaderboard")
    trials = console.say(connection, "leaderboard", run_id=run_id)
    configs = telling_configs(trials)  # what differs; psql shows all of it
    shown = [{**trial, "config": config} for trial, config in zip(trials, configs, strict=True)]
    print_rows(shown, as_json=False, empty="", is_folded=False)


def _predict(connection: Connection, console: SubjectConsole) -> None:
    console.step("Predictions by the best trial, for rows that it has never seen")
    print_rows(console.say(connection, "predict"), as_json=False, empty="")
    console.step("And for all of them at once")
    connection.execute(console.subject.statement("drop_predictions").encode())
    console.say(connection, "predict_table")
    print_rows(console.say(connection, "accuracy"), as_json=False, empty="")
