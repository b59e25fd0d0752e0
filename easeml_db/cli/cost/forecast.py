"""easeml run forecast: when runs under way will be done, and what they will have cost."""

from __future__ import annotations

import click

from easeml_db.cli.terminal.arguments import run_argument
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.output import json_option, print_rows
from easeml_db.cli.terminal.statements import call_rows

COLUMNS = {
    "run": "run", "dataset_name": "dataset", "status": "status", "eta_at": "done at", "eta_p95_at": "95 % by",
    "cost_so_far": "cost so far", "cost_expected": "cost", "deadline": "deadline", "is_at_risk": "at risk",
    "note": "assumed",
}  # fmt: skip


@click.command()
@run_argument
@dsn_option
@json_option
def forecast(run_id: int | None, dsn: str | None, as_json: bool) -> None:
    """Forecast when RUN (default: every run under way) will be done, and what it will have cost."""
    with database(dsn) as connection:
        forecasts = call_rows(connection, "forecast", run_id=run_id)
    print_rows(forecasts, as_json=as_json, empty="no run is under way", columns=COLUMNS)


COMMANDS = (forecast,)
