"""easeml dataset: list, create, refresh and drop datasets."""

from __future__ import annotations

import shlex

import click

from easeml_db.cli.terminal.arguments import integer_list, name_list
from easeml_db.cli.terminal.connection import database
from easeml_db.cli.terminal.listing import group_options, listing, listing_group, read_rows
from easeml_db.cli.terminal.output import print_json, print_rows, say
from easeml_db.cli.terminal.statements import Connection, call, rows

COLUMNS = {
    "dataset_name": "dataset", "version": "version", "task": "task", "target_column": "target", "input_shape": "shape",
    "n_partitions": "partitions", "n_train_rows": "train", "n_validation_rows": "validation", "n_test_rows": "test",
    "n_runs": "runs",
}  # fmt: skip
REFRESH_COLUMNS = {
    "dataset_name": "dataset", "every": "every", "when_drift": "when drift", "next_at": "next", "last_outcome": "last",
    "last_reason": "why", "problem": "problem",
}  # fmt: skip


WAIT = "CALL easeml.wait_dataset(%s)"  # rows on nodes are packed a little later


def _print_datasets(dsn: str | None, as_json: bool) -> None:
    empty = "no datasets yet; make one: easeml dataset create NAME --source TABLE --target column"
    print_rows(read_rows(dsn, "datasets"), as_json=as_json, empty=empty, columns=COLUMNS)


datasets = listing_group(
    "dataset", "List datasets (without a command), or create, refresh, replicate and drop them.", _print_datasets
)


@datasets.command()
@click.argument("name")
@click.option(
    "--source", required=True, help='Table or view, written as in SQL; for rows on nodes {"segment": "schema.table"}.'
)
@click.option(
    "--inputs",
    callback=name_list,
    help="Columns to predict from: a,b,... (default: all except those that identify rows).",
)
@click.option("--target", required=True, help="Column to predict.")
@click.option("--n-partitions", type=int, help="Parts that train side by side (default: 4).")
@click.option("--validation-fraction", type=float, help="Share of the rows that rank trials (default: 0.15).")
@click.option("--test-fraction", type=float, help="Share of the rows that no choice sees (default: 0.15).")
@click.option("--split-column", help="Column that holds train, validation or test for each row.")
@click.option("--time-column", help="Column of times: the newest rows become test rows, the oldest training rows.")
@click.option("--group-column", help="Column of groups; no group is in two splits.")
@click.option(
    "--key-columns", callback=name_list, help="Columns that identify rows: a,b,... (default: the primary key)."
)
@click.option("--n-folds", type=int, help="Folds of cross-validation, for small tables.")
@click.option("--seed", type=int, help="Same rows and seed, same split (default: 0).")
@click.option("--task", help="classification or regression (default: by the target's type).")
@click.option("--input-shape", callback=integer_list, help="Shape of bytea and flat arrays: 28,28")
@click.option("--block-rows", type=int, help="Rows of a packed block (default: about 2 MB).")
@click.option("--placement", help="shared, or bound: each partition belongs to one segment's slots (default: shared).")
@click.option("--shuffle", help="For rows on nodes: across (over all nodes, the default there) or within (each node).")
@group_options
def create(name: str, dsn: str | None, as_json: bool, inputs: list[str] | None, **named: object) -> None:
    """Register a table or view as dataset NAME: shuffled, split and packed inside the database."""
    with database(dsn, has_own_names=True) as connection:
        dataset_id = call(connection, "create_dataset", name, inputs=inputs, **named)
        connection.execute(WAIT, [dataset_id])
        _print_dataset(connection, dataset_id, as_json)


@datasets.command()
@click.argument("name")
@click.option("--every", help="Let the service check the source that often: '1 day', '1 hour'.")
@click.option("--when-drift", type=float, help="Train only if a column has drifted by this much, for example 0.25.")
@click.option("--off", is_flag=True, help="Let the service check it no longer.")
@click.option("--now", is_flag=True, help="Make the service check the source now.")
@click.option("--advance", is_flag=True, help="Take the next step here and now, if the service cannot log in as you.")
@group_options
def refresh(name: str, dsn: str | None, as_json: bool, **options: object) -> None:
    """Pack the source as it is now into a new version of dataset NAME; earlier runs keep theirs.

    With --every or --when-drift, the service does so by itself from now on: it trains NAME again on new rows, and lets
    the new trial answer if it is better on them.
    """
    if sum(bool(options[option]) for option in ("off", "now", "advance")) > 1:
        raise click.UsageError("--off, --now and --advance exclude each other")
    with database(dsn, has_own_names=True) as connection:
        if any(value is not None and value is not False for value in options.values()):
            _print_refresh(name, _change_refresh(connection, name, options), as_json)
            return
        dataset_id = call(connection, "refresh_dataset", name)
        connection.execute(WAIT, [dataset_id])
        _print_dataset(connection, dataset_id, as_json)


def _change_refresh(connection: Connection, name: str, options: dict[str, object]) -> str:
    """Change the refresh of a dataset by the service; return in words what was done."""
    if options["advance"]:
        return str(call(connection, "advance_refresh", name))
    if options["now"]:
        call(connection, "run_refresh", name)
        return "the service looks now"
    if options["off"]:
        call(connection, "set_refresh", name)
        return "refreshed no more"
    call(connection, "set_refresh", name, every=options["every"], when_drift=options["when_drift"])
    return "refreshed"


def _print_refresh(name: str, done: str, as_json: bool) -> None:
    if as_json:
        print_json({"dataset": name, "result": done})
    else:
        say(f"dataset {name}: {done}")


datasets.add_command(listing(
    "refreshes", "List the datasets that are trained again on new rows, with the last outcome.",
    empty="no dataset is refreshed; have one: easeml dataset refresh NAME --every '1 day'", columns=REFRESH_COLUMNS,
))  # fmt: skip


@datasets.command()
@click.argument("name")
@click.argument("factor", type=int)
@group_options
def replicate(name: str, factor: int, dsn: str | None, as_json: bool) -> None:
    """Let FACTOR segments hold each partition of dataset NAME, whose placement is bound."""
    with database(dsn) as connection:
        call(connection, "replicate_dataset", name, factor)
        partitions = rows(connection, "partitions", dataset=name)
    columns = {"partition_number": "partition", "holders": "segments", "n_train_rows": "train", "n_bytes": "bytes"}
    print_rows(partitions, as_json=as_json, empty="no partitions", columns=columns)


@datasets.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Also remove its runs, with all that they have trained.")
@group_options
def drop(name: str, cascade: bool, dsn: str | None, as_json: bool) -> None:
    """Remove dataset NAME with all its versions; the source stays."""
    with database(dsn) as connection:
        call(connection, "drop_dataset", name, cascade=cascade)
    if as_json:
        print_json({"dropped": name})
    else:
        say(f"dropped dataset {name}")


COMMANDS = (datasets,)


def _print_dataset(connection: Connection, dataset_id: int, as_json: bool) -> None:
    made = rows(connection, "dataset", dataset_id=dataset_id)[0]
    if as_json:
        print_json(made)
        return
    # Without validation rows of their own, training rows validate in turn: the partitions are folds.
    validates = f", {made['n_validation_rows']} to validate" if made["n_validation_rows"] else ""
    say(
        f"dataset {made['dataset_name']}, version {made['version']}: {made['task']},"
        f" {made['n_train_rows']} rows to train on{validates}, {made['n_test_rows']} to test,"
        f" in {made['n_partitions']} {'partitions' if validates else 'folds'}"
    )
    if made["n_skipped_rows"]:
        say(f"{made['n_skipped_rows']} rows without a target were left out")
    if made["shuffle"] is not None:
        where = "stayed on their nodes" if made["shuffle"] == "within" else "were dealt over all nodes"
        say(f"the rows {where}; {made['n_moved_bytes']} bytes went from node to node")
    say(f"next: easeml select {shlex.quote(made['dataset_name'])}")
