"""easeml procedures and preview: how configs can be tried, and what that would train."""

from __future__ import annotations

from typing import Any

import click

from easeml_db.cli.terminal.arguments import json_value, jsonb, name_list
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.listing import read_rows
from easeml_db.cli.terminal.output import json_option, print_json, print_rows, say
from easeml_db.cli.terminal.statements import call_rows

PROCEDURE_COLUMNS = {
    "procedure": "procedure", "is_one_shot": "one shot", "options": "options", "summary": "what it does",
}  # fmt: skip
RUNG_COLUMNS = {
    "arm": "arm", "bracket": "bracket", "rung": "rung", "n_trials": "trials", "n_epochs": "epochs each",
    "total_epochs": "epochs in all",
}  # fmt: skip


@click.command()
@dsn_option
@json_option
def procedures(dsn: str | None, as_json: bool) -> None:
    """List the procedures that easeml select can ask for, with their options."""
    found = read_rows(dsn, "procedures")
    if not as_json:
        found = [row | {"options": ", ".join(row["options"])} for row in found]
    print_rows(found, as_json=as_json, empty="no procedures", columns=PROCEDURE_COLUMNS)


@click.command()
@click.argument("procedure")
@click.option("--max-epochs", type=int, help="Passes of a trial over the training rows, at most (default: 100).")
@click.option("--n-configs", type=int, help="Number of trials (default: as many as the procedure plans).")
@click.option("--procedure-options", callback=json_value, help='JSON object, or @FILE: {"eta": 3}.')
@click.option("--dataset", help="Take the architectures that suit this dataset.")
@click.option("--architectures", callback=name_list, help="Names with commas.")
@click.option("--search-space", callback=json_value, help="JSON object, or @FILE.")
@click.option("--seed", type=int, help="Seed of the run (default: 0).")
@dsn_option
@json_option
def preview(
    procedure: str, procedure_options: Any, search_space: Any, dsn: str | None, as_json: bool, **named: object
) -> None:
    """Show the brackets and rungs that PROCEDURE would train, and the work in all; nothing runs."""
    documents = {"search_space": jsonb(search_space), "procedure_options": jsonb(procedure_options)}
    with database(dsn) as connection:
        found = call_rows(connection, "preview_procedure", procedure, **documents, **named)
    if as_json:
        print_json(found)
        return
    has_arms = any(row["arm"] for row in found)
    columns = {name: title for name, title in RUNG_COLUMNS.items() if has_arms or name != "arm"}
    print_rows(found, as_json=False, empty="nothing to train", columns=columns)
    n_trials = sum(row["n_trials"] for row in found if row["rung"] == 0)
    say(f"{n_trials} trial(s), {sum(row['total_epochs'] for row in found)} epoch(s) in all")


COMMANDS = (procedures, preview)
