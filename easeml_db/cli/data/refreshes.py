"""easeml refresh: training again on new rows."""

from __future__ import annotations

import click

from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.listing import listing
from easeml_db.cli.terminal.output import json_option, print_json, say
from easeml_db.cli.terminal.statements import Connection, call

STATUS_COLUMNS = {
    "dataset_name": "dataset", "every": "every", "when_drift": "when drift", "next_at": "next", "last_outcome": "last",
    "last_reason": "why", "problem": "problem",
}  # fmt: skip

refreshes = listing(
    "refreshes", "List the datasets that are trained again on new rows, with the last outcome.",
    empty="no dataset is refreshed; have one: easeml refresh NAME --every '1 day'", columns=STATUS_COLUMNS,
)  # fmt: skip


@click.command()
@click.argument("dataset")
@click.option("--every", help="How often to check the source: '1 day', '1 hour' (default: a day).")
@click.option("--when-drift", type=float, help="Train only if a column has drifted by this much, for example 0.25.")
@click.option("--off", is_flag=True, help="Stop refreshing it.")
@click.option("--now", is_flag=True, help="Make the service check the source now.")
@click.option("--advance", is_flag=True, help="Take the next step here and now, if the service cannot log in as you.")
@dsn_option
@json_option
def refresh(dataset: str, dsn: str | None, as_json: bool, **wanted: object) -> None:
    """Train DATASET again on new rows, and let the new trial answer if it is better on them.

    Without options, the service checks the source every day.
    """
    if sum(bool(wanted[name]) for name in ("off", "now", "advance")) > 1:
        raise click.UsageError("--off, --now and --advance exclude each other")
    with database(dsn) as connection:
        done = _refresh(connection, dataset, wanted)
    if as_json:
        print_json({"dataset": dataset, "result": done})
    else:
        say(f"dataset {dataset}: {done}")


def _refresh(connection: Connection, dataset: str, wanted: dict[str, object]) -> str:
    """Carry out the request, and return in words what was done."""
    if wanted["advance"]:
        return str(call(connection, "advance_refresh", dataset))
    if wanted["now"]:
        call(connection, "run_refresh", dataset)
        return "the service looks now"
    if wanted["off"]:
        call(connection, "set_refresh", dataset)
        return "refreshed no more"
    every = wanted["every"] or (None if wanted["when_drift"] is not None else "1 day")
    call(connection, "set_refresh", dataset, every=every, when_drift=wanted["when_drift"])
    return "refreshed"


COMMANDS = (refresh, refreshes)
