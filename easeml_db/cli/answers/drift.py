"""easeml drift: how far new rows have drifted from the training rows."""

from __future__ import annotations

import click

from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.output import json_option, print_rows
from easeml_db.cli.terminal.statements import call_rows

COLUMNS = {
    "since": "since", "input": "column", "drift": "drift", "psi": "psi", "chance_psi": "by chance",
    "missing": "missing", "trained_missing": "missing in training", "unseen": "unseen", "unseen_values": "new values",
    "gone_values": "gone values",
}  # fmt: skip


@click.command()
@click.argument("dataset")
@click.option("--source", help="Table or view with the new rows (default: that of the dataset).")
@click.option("--time-column", help="Column of times: a line for each period.")
@click.option("--every", help="Length of a period (default: '1 day').")
@click.option("--n-rows", type=int, help="Largest number of rows to read (default: 100000).")
@click.option("--version", type=int, help="Version of the dataset (default: the newest).")
@dsn_option
@json_option
def drift(dataset: str, dsn: str | None, as_json: bool, **named: object) -> None:
    """Compare present rows with the training rows of DATASET, column by column."""
    with database(dsn, has_own_names=True) as connection:
        changes = call_rows(connection, "drift", dataset, **named)
    hidden = "since" if named["time_column"] is None else ""
    columns = {name: heading for name, heading in COLUMNS.items() if name != hidden}
    print_rows(changes, as_json=as_json, empty="nothing to compare", columns=columns)


COMMANDS = (drift,)
