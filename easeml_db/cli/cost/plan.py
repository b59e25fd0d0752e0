"""easeml plan: what a search would cost and when it would be done, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from easeml_db.cli.cost.plan_chart import frontier_chart, slots_chart
from easeml_db.cli.search.run_snapshot import duration
from easeml_db.cli.terminal.arguments import jsonb
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.output import json_option, print_json, print_rows, say
from easeml_db.cli.terminal.search_options import search_options
from easeml_db.cli.terminal.statements import Connection, Row, call, call_rows
from easeml_db.report.wording import cost_text

STAGE_COLUMNS = {
    "plan": "plan", "stage": "stage", "n_trials": "trials", "n_epochs": "epochs", "instance_type": "instance",
    "n_instances": "instances", "n_slots": "slots", "seconds_mean": "seconds", "seconds_p95": "p95",
    "cost_mean": "cost", "cost_p95": "p95 cost", "label": "what",
}  # fmt: skip
POINT_COLUMNS = {
    "point": "point", "seconds_mean": "seconds", "seconds_p95": "p95", "cost_mean": "cost", "cost_p95": "p95 cost",
    "n_slots": "slots of each stage",
}  # fmt: skip


@click.command()
@click.argument("dataset")
@search_options(
    "architectures", "search_space", "procedure", "procedure_options", "n_configs", "max_epochs", "seed", "deadline",
    "max_cost", "price_list",
)  # fmt: skip
@click.option("--confidence", type=float, help="Probability with which the limits must be kept (default: 0.95).")
@click.option("--frontier", "has_frontier", is_flag=True, help="Draw the plans from the fastest to the cheapest.")
@click.option(
    "--profile", "is_profiled", is_flag=True, help="First train some trials, for at most a minute, to time them."
)
@dsn_option
@json_option
def plan(
    dataset: str,
    search_space: Any,
    procedure_options: Any,
    has_frontier: bool,
    is_profiled: bool,
    dsn: str | None,
    as_json: bool,
    **named: Any,
) -> None:
    """Show what a search on DATASET would cost, and when it would be done; only --profile starts anything."""
    documents = {"search_space": jsonb(search_space), "procedure_options": jsonb(procedure_options)}
    if has_frontier:
        given = [name for name in ("deadline", "max_cost", "confidence") if named.pop(name) is not None]
        if given:
            raise click.UsageError(f"--frontier shows all limits: leave out --{given[0].replace('_', '-')}")
    with database(dsn) as connection:
        if is_profiled:
            _profile(connection, dataset, named | documents)
        function = "plan_frontier" if has_frontier else "plan"
        points = call_rows(connection, function, dataset, **documents, **named)
    if as_json:
        print_json(points)
    elif has_frontier:
        print_rows(points, as_json=False, empty="no plan", columns=POINT_COLUMNS)
        say(frontier_chart(points))
    else:
        _print_plans(points)


def _profile(connection: Connection, dataset: str, given: Mapping[str, Any]) -> None:
    """Time the first trials of a search, and wait until that is done."""
    shared = {name: given[name] for name in ("architectures", "search_space", "seed")}
    run_id = call(connection, "profile_dataset", dataset, **shared)
    say(f"run {run_id} times some trials, for a minute at most", err=True)
    connection.execute("CALL easeml.wait(%s)", [run_id])


def _print_plans(points: Sequence[Row]) -> None:
    stages = [row for row in points if row["stage"] is not None]
    print_rows(stages, as_json=False, empty="no plan", columns=STAGE_COLUMNS)
    totals = {row["plan"]: row for row in points if row["stage"] is None}
    longest = max(row["seconds_mean"] for row in totals.values())
    for name, total in totals.items():
        chance = "" if total["chance"] is None else f", within its limits in {total['chance']:.0%} of cases"
        say(
            f"\n{name}: {duration(total['seconds_mean'])} (95 % within {duration(total['seconds_p95'])}),"
            f" cost {cost_text(total['cost_mean'])} (95 % within {cost_text(total['cost_p95'])}){chance}"
        )
        say(slots_chart([row for row in stages if row["plan"] == name], longest))
    for note in dict.fromkeys(row["note"] for row in totals.values() if row["note"]):
        say(f"\nassumed: {note}")


COMMANDS = (plan,)
