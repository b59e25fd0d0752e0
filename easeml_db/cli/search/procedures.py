"""easeml procedure and schedulers: how configs can be tried, what that would train, and in which order."""

from __future__ import annotations

from typing import Any

import click

from easeml_db.cli.terminal.arguments import jsonb
from easeml_db.cli.terminal.connection import database
from easeml_db.cli.terminal.listing import group_options, listing, listing_group, read_rows
from easeml_db.cli.terminal.output import print_json, print_rows, say
from easeml_db.cli.terminal.search_options import search_options
from easeml_db.cli.terminal.statements import call_rows

PROCEDURE_COLUMNS = {
    "procedure": "procedure", "is_one_shot": "one shot", "options": "options", "summary": "what it does",
}  # fmt: skip
RUNG_COLUMNS = {
    "arm": "arm", "bracket": "bracket", "rung": "rung", "n_trials": "trials", "n_epochs": "epochs each",
    "total_epochs": "epochs in all",
}  # fmt: skip


SCHEDULER_COLUMNS = {
    "scheduler": "scheduler", "needs_free_order": "needs free order", "needs_single_holders": "needs single holders",
    "summary": "what it does",
}  # fmt: skip


def _print_procedures(dsn: str | None, as_json: bool) -> None:
    procedures = read_rows(dsn, "procedures")
    if not as_json:
        procedures = [row | {"options": ", ".join(row["options"])} for row in procedures]
    print_rows(procedures, as_json=as_json, empty="no procedures", columns=PROCEDURE_COLUMNS)


procedure_group = listing_group(
    "procedure", "List the procedures that easeml select can ask for (without a command), or preview one.",
    _print_procedures,
)  # fmt: skip


@procedure_group.command()
@click.argument("procedure")
@click.option("--dataset", help="Take the architectures that suit this dataset.")
@search_options("architectures", "search_space", "procedure_options", "n_configs", "max_epochs", "seed")
@group_options
def preview(
    procedure: str, procedure_options: Any, search_space: Any, dsn: str | None, as_json: bool, **named: object
) -> None:
    """Show the brackets and rungs that PROCEDURE would train, and the work in all; nothing runs."""
    documents = {"search_space": jsonb(search_space), "procedure_options": jsonb(procedure_options)}
    with database(dsn) as connection:
        rungs = call_rows(connection, "preview_procedure", procedure, **documents, **named)
    if as_json:
        print_json(rungs)
        return
    has_arms = any(row["arm"] for row in rungs)
    columns = {name: title for name, title in RUNG_COLUMNS.items() if has_arms or name != "arm"}
    print_rows(rungs, as_json=False, empty="nothing to train", columns=columns)
    n_trials = sum(row["n_trials"] for row in rungs if row["rung"] == 0)
    say(f"{n_trials} trial(s), {sum(row['total_epochs'] for row in rungs)} epoch(s) in all")


schedulers = listing(
    "schedulers", "List the schedulers that easeml select can ask for.",
    columns=SCHEDULER_COLUMNS, empty="no schedulers",
)  # fmt: skip

COMMANDS = (procedure_group, schedulers)
