"""easeml evaluate, explain and related commands: how good the answering trial is, and which inputs it relies on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from psycopg.types.json import Jsonb

from easeml_db.cli.terminal.arguments import json_value, run_argument
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.output import json_option, print_rows
from easeml_db.cli.terminal.statements import call_rows, run_or_newest

Decorate = Callable[[Any], Any]

SCORE_COLUMNS = {"metric": "metric", "validation": "validation", "test": "test", "summary": "what it is"}
IMPORTANCE_COLUMNS = {"input": "input", "importance": "importance", "standard_deviation": "± deviation"}
PART_COLUMNS = {
    "input": "input", "value": "value", "contribution": "contribution", "standard_error": "± error", "unit": "unit",
}  # fmt: skip
HYPERPARAMETER_COLUMNS = {
    "architecture": "architecture", "hyperparameter": "hyperparameter", "importance": "importance",
    "n_values": "values", "n_trials": "trials",
}  # fmt: skip
TABLES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "confusion-matrix": (
        "confusion_matrix", "Count held-out rows of DATASET by their class and the predicted one.",
        ("threshold", "positive"),
    ),
    "class-metrics": ("class_metrics", "Show counts and metrics of each class of DATASET.", ("threshold", "positive")),
    "roc-curve": ("roc_curve", "List the corners of the ROC curve of DATASET, for each threshold.", ("positive",)),
    "calibration": (
        "calibration", "Compare the predicted probabilities for DATASET with observed frequencies.",
        ("positive", "n_bins"),
    ),
    "residuals": ("residuals", "List targets, answers and residuals of a regression.", ()),
}  # fmt: skip
"""Commands for what one split shows: the function of each, its help, and its own options."""

trial_option = click.option("--trial", "trial_id", type=int, help="The trial (default: the one that answers).")
split_option = click.option(
    "--split", type=click.Choice(["test", "validation"]), help="Which held-out rows (default: test)."
)
TABLE_OPTIONS: Mapping[str, Decorate] = {
    "threshold": click.option(
        "--threshold",
        type=float,
        help="Probability from which rows count as positive (default: the most probable class counts).",
    ),
    "positive": click.option("--positive", help="The label that counts as positive (default: the second of two)."),
    "n_bins": click.option("--n-bins", type=int, help="How many intervals of probability (default: 10)."),
}


@click.command()
@click.argument("dataset")
@trial_option
@TABLE_OPTIONS["threshold"]
@TABLE_OPTIONS["positive"]
@dsn_option
@json_option
def evaluate(dataset: str, trial_id: int | None, dsn: str | None, as_json: bool, **options: Any) -> None:
    """Measure the trial that answers for DATASET on validation and test rows, by all metrics of its task."""
    with database(dsn) as connection:
        scores = call_rows(connection, "evaluate", dataset, trial_id=trial_id, **options)
    print_rows(scores, as_json=as_json, empty="", columns=SCORE_COLUMNS)


def _table_command(name: str) -> click.Command:
    """Make a command that lists the rows that a function returns for one split."""
    function, text, own_options = TABLES[name]

    def show(dataset: str, trial_id: int | None, dsn: str | None, as_json: bool, **options: Any) -> None:
        with database(dsn) as connection:
            table = call_rows(connection, function, dataset, trial_id=trial_id, **options)
        print_rows(table, as_json=as_json, empty="There is nothing to show: all rows are of one class.")

    options = [click.argument("dataset"), trial_option, split_option, *map(TABLE_OPTIONS.__getitem__, own_options)]
    decorated: Any = show
    for decorate in reversed([*options, dsn_option, json_option]):
        decorated = decorate(decorated)
    return click.command(name, help=text)(decorated)


@click.command()
@click.argument("dataset")
@click.option("--row", callback=json_value, help="Explain the answer for this row instead: a JSON object, or @FILE.")
@click.option("--label", help="With --row: the class whose answer is explained (default: the predicted one).")
@trial_option
@click.option("--metric", help="Metric that gets worse, one of easeml evaluate (default: the metric of the run).")
@dsn_option
@json_option
def explain(
    dataset: str, row: Any, label: str | None, trial_id: int | None, metric: str | None, dsn: str | None, as_json: bool
) -> None:
    """Show which inputs the answers for DATASET depend on: all answers, or with --row the answer for one row."""
    if row is None and label is not None:
        raise click.UsageError("--label belongs to --row")
    if row is not None and metric is not None:
        raise click.UsageError("--metric is for all answers, not for that of --row")
    with database(dsn) as connection:
        if row is None:
            shares = call_rows(connection, "explain", dataset, trial_id=trial_id, metric=metric)
        else:
            shares = call_rows(connection, "explain_row", dataset, Jsonb(row), trial_id=trial_id, label=label)
    columns = IMPORTANCE_COLUMNS if row is None else PART_COLUMNS
    print_rows(shares, as_json=as_json, empty="", columns=columns)


@click.command("hyperparameter-importance")
@run_argument
@dsn_option
@json_option
def hyperparameter_importance(run_id: int | None, dsn: str | None, as_json: bool) -> None:
    """Show which hyperparameters mattered in RUN (default: the newest)."""
    with database(dsn) as connection:
        shares = call_rows(connection, "hyperparameter_importance", run_or_newest(connection, run_id))
    print_rows(shares, as_json=as_json, empty="", columns=HYPERPARAMETER_COLUMNS)


COMMANDS = (evaluate, *map(_table_command, TABLES), explain, hyperparameter_importance)
