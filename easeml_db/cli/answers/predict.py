"""easeml predict, serving, deploy, undeploy and rollback: answers from the best trial, or from one chosen by hand."""

from __future__ import annotations

from typing import Any

import click
from psycopg.types.json import Jsonb

from easeml_db.cli.terminal.arguments import json_value, name_list
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.listing import listing
from easeml_db.cli.terminal.output import json_option, print_json, say, text_of
from easeml_db.cli.terminal.statements import call


@click.command()
@click.argument("dataset")
@click.option("--source", help="Table or view with the dataset's input columns.")
@click.option("--output", help="Table for keys and predictions.")
@click.option(
    "--if-exists", help="If the output exists: refuse, append (rows with new keys) or update (default: refuse)."
)
@click.option("--key", callback=name_list, help="Columns that identify rows: a,b (default: the primary key).")
@click.option("--probabilities", is_flag=True, help="Show, or write, the probabilities of all classes.")
@click.option("--row", callback=json_value, help="One row as JSON (or @FILE): an object of columns, or its numbers.")
@click.option("--trial", "trial_id", type=int, help="The trial that answers (default: what easeml serving shows).")
@dsn_option
@json_option
def predict(
    dataset: str,
    source: str | None,
    output: str | None,
    row: Any,
    trial_id: int | None,
    dsn: str | None,
    as_json: bool,
    **added: object,
) -> None:
    """Predict for a table (--source, --output) or for one row (--row), inside the database."""
    if (row is None) == (source is None) or (source is None) != (output is None):
        raise click.UsageError("give either --row, or --source and --output")
    if row is None:
        with database(dsn, has_own_names=True) as connection:
            n_rows = call(connection, "predict_table", dataset, source, output, trial_id=trial_id, **added)
        _say(as_json, f"{output}: {n_rows} predictions", output=output, n_rows=n_rows)
    elif added["probabilities"]:
        _predict_probabilities(dataset, row, trial_id, dsn, as_json)
    else:
        _predict_row(dataset, row, trial_id, dsn, as_json)


@click.command()
@click.argument("trial_id", metavar="TRIAL", type=int)
@dsn_option
@json_option
def deploy(trial_id: int, dsn: str | None, as_json: bool) -> None:
    """Let TRIAL (its trial_id) answer predictions for its dataset, whatever is trained later."""
    with database(dsn) as connection:
        call(connection, "deploy", trial_id)
    _say(as_json, f"trial {trial_id} answers from now on", trial_id=trial_id, is_deployed=True)


@click.command()
@click.argument("dataset")
@dsn_option
@json_option
def undeploy(dataset: str, dsn: str | None, as_json: bool) -> None:
    """Withdraw the deployed trial of DATASET: the best trial by its metric answers again."""
    with database(dsn) as connection:
        call(connection, "undeploy", dataset)
    _say(as_json, f"the best trial of {dataset} answers from now on", dataset=dataset, is_deployed=False)


@click.command()
@click.argument("dataset")
@dsn_option
@json_option
def rollback(dataset: str, dsn: str | None, as_json: bool) -> None:
    """Let the trial before the present one answer for DATASET again; each further call goes back one more."""
    with database(dsn) as connection:
        trial_id = call(connection, "rollback", dataset)
    _say(as_json, f"trial {trial_id} answers from now on", dataset=dataset, trial_id=trial_id)


serving = listing(
    "serving",
    "Show which trial answers predictions for each dataset, and why.",
    columns={
        "dataset_name": "dataset", "trial_id": "trial", "architecture": "architecture", "metric": "metric",
        "validation_metric": "on validation rows", "since": "since", "reason": "because",
    },
    empty="nothing answers yet; start a run: easeml select DATASET",
)  # fmt: skip

COMMANDS = (predict, serving, deploy, undeploy, rollback)


def _predict_row(dataset: str, row: Any, trial_id: int | None, dsn: str | None, as_json: bool) -> None:
    inputs = _inputs(row)
    with database(dsn) as connection:
        # The row function, not the scalar one: it also returns the probability, and the trial that answered.
        answer = connection.execute(
            "SELECT * FROM easeml.predict_row(%s, %s, %s)", [dataset, inputs, trial_id]
        ).fetchone()
    if as_json:
        print_json(answer)
    elif answer:
        sure = "" if answer["probability"] is None else f", probability {text_of(answer['probability'])}"
        say(f"{answer['label']}  (trial {answer['serving_trial_id']}{sure})")
        if answer["clipped"]:
            beyond = ", ".join(answer["clipped"])
            say(f"beyond what training saw, and taken as its nearest number: {beyond}", err=True)


def _predict_probabilities(dataset: str, row: Any, trial_id: int | None, dsn: str | None, as_json: bool) -> None:
    inputs = _inputs(row)
    with database(dsn) as connection:
        probabilities = call(connection, "predict_probabilities", dataset, inputs, trial_id=trial_id)
    if as_json:
        print_json(probabilities)
    else:
        for label, probability in sorted(probabilities.items(), key=lambda pair: -pair[1]):
            say(f"{label}  {text_of(probability)}")


def _inputs(row: Any) -> Any:
    """Return a row in the form that the server expects: an object as jsonb, numbers as an array."""
    return _numbers(row) if isinstance(row, list) else Jsonb(row)


def _numbers(value: Any) -> Any:
    """Return nested lists of numbers as floats: the driver sends arrays of one type."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return None if value is None else float(value)
    raise click.BadParameter(f"expected numbers, got {value!r}", param_hint="--row")


def _say(as_json: bool, text: str, **facts: object) -> None:
    if as_json:
        print_json(facts)
    else:
        say(text)
