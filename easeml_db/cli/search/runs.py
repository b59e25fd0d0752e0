"""easeml select, runs, leaderboard, cancel, resume and drop: runs from the shell."""

from __future__ import annotations

from typing import Any

import click

from easeml_db.cli.search.screen import leaderboard_table
from easeml_db.cli.search.watch import watch_and_exit
from easeml_db.cli.terminal.arguments import json_value, jsonb, name_list, run_argument
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.listing import listing, read_rows
from easeml_db.cli.terminal.output import json_option, print_json, print_rows, say
from easeml_db.cli.terminal.plain_table import print_table
from easeml_db.cli.terminal.statements import call, read_run, rows, run_or_newest

RUN_COLUMNS = {
    "run_id": "run", "dataset_name": "dataset", "status": "status", "n_trials": "trials", "max_epochs": "epochs",
    "percent_done": "% done", "metric": "metric", "best_metric_value": "best", "best_trial_id": "trial",
    "elapsed_seconds": "seconds", "created_at": "asked for",
}  # fmt: skip

SCHEDULER_COLUMNS = {
    "scheduler": "scheduler", "needs_free_order": "needs free order", "needs_single_holders": "needs single holders",
    "summary": "what it does",
}  # fmt: skip


@click.command()
@click.argument("dataset")
@click.option("--architectures", callback=name_list, help="Names with commas (default: those that suit the data).")
@click.option("--search-space", callback=json_value, help='JSON object, or @FILE: {"learning_rate": [0.01, 0.001]}.')
@click.option(
    "--procedure", help="How configs are tried; easeml procedures lists them (default: race, with --max-epochs random)."
)
@click.option("--procedure-options", callback=json_value, help='JSON object, or @FILE: {"eta": 3}.')
@click.option(
    "--n-configs", type=int, help="Number of trials (default: as many as there is time for; random 8, grid all)."
)
@click.option("--max-epochs", type=int, help="Passes of a trial over the training rows, at most (default: 100).")
@click.option(
    "--metric", help="What ranks the trials (default: that of the first run, else accuracy, or rmse for numbers)."
)
@click.option(
    "--max-seconds", type=float, help="Train no longer than that (default: 120, without --max-epochs and --n-configs)."
)
@click.option("--seed", type=int, help="Same data, arguments and seed, same result (default: 0).")
@click.option("--scheduler", help="Which trial runs next where; easeml schedulers lists them (default: auto).")
@click.option("--visit-order", help="cyclic, or free: the scheduler chooses the partitions too (default: cyclic).")
@click.option(
    "--allocation",
    help="hopping, batched, data_parallel, water_filling, auto or planned (default: hopping; timed: batched).",
)
@click.option(
    "--deadline", help="Time from now by which it should end, as SQL writes it: '20 minutes'. The run is then planned."
)
@click.option(
    "--max-cost", type=float, help="Cost limit; at the limit the run ends with what it has. The run is then planned."
)
@click.option("--price-list", help="What the slots of a planned run cost; easeml prices lists them (default: local).")
@click.option("--watch", "is_watched", is_flag=True, help="Show the run live until it ends.")
@dsn_option
@json_option
def select(
    dataset: str,
    search_space: Any,
    procedure_options: Any,
    is_watched: bool,
    dsn: str | None,
    as_json: bool,
    **named: object,
) -> None:
    """Train many configs on DATASET and print the run's id at once; the coordinator does the work."""
    documents = {"search_space": jsonb(search_space), "procedure_options": jsonb(procedure_options)}
    with database(dsn) as connection:
        run_id = call(connection, "select_models", dataset, **documents, **named)
    if is_watched:
        watch_and_exit(dsn, run_id, as_json=as_json)
    elif as_json:
        print_json({"run_id": run_id})
    else:
        say(run_id)


schedulers = listing(
    "schedulers",
    "List the schedulers that easeml select can ask for.",
    columns=SCHEDULER_COLUMNS,
    empty="no schedulers",
)


@click.command()
@click.option("--limit", "-n", type=click.IntRange(1), default=20, show_default=True, help="How many.")
@dsn_option
@json_option
def runs(limit: int, dsn: str | None, as_json: bool) -> None:
    """List runs, newest first."""
    found = read_rows(dsn, "runs", limit=limit)
    print_rows(found, as_json=as_json, empty="no runs yet; start one: easeml select DATASET", columns=RUN_COLUMNS)


@click.command()
@run_argument
@dsn_option
@json_option
def leaderboard(run_id: int | None, dsn: str | None, as_json: bool) -> None:
    """Show the trials of RUN (default: the newest), best first. deploy and predict take the trial's number."""
    with database(dsn) as connection:
        run = read_run(connection, run_or_newest(connection, run_id))
        trials = rows(connection, "leaderboard", run_id=run["run_id"])
        summary = rows(connection, "summary", run_id=run["run_id"])
    if as_json:
        print_json(trials)
        return
    say(
        f"run {run['run_id']} on {run['dataset_name']}: {run['status']}, {run['percent_done']} %"
        f" of {run['n_units']} units, ranked by {run['metric']}"
    )
    print_table(leaderboard_table(trials))
    for row in summary:
        say(row["sentence"])


def _change_command(function: str, text: str) -> click.Command:
    """Make a command that calls a function of the extension on a run, then shows the run's status."""

    @click.command(function, help=text)
    @click.argument("run_id", metavar="RUN", type=int)
    @dsn_option
    @json_option
    def change(run_id: int, dsn: str | None, as_json: bool) -> None:
        with database(dsn) as connection:
            call(connection, function, run_id)
            run = read_run(connection, run_id)
        if as_json:
            print_json(run)
        else:
            say(f"run {run_id} is {run['status']}, {run['n_units_done']} of {run['n_units']} units done")

    return change


cancel = _change_command(
    "cancel", "Stop RUN within a second; recorded units stay, and easeml resume continues from there."
)
resume = _change_command("resume", "Continue a cancelled or failed RUN from its last recorded units.")


@click.command()
@click.argument("run_id", metavar="RUN", type=int)
@click.option("--force", "is_forced", is_flag=True, help="Drop it even if one of its trials answers predictions.")
@dsn_option
@json_option
def drop(run_id: int, is_forced: bool, dsn: str | None, as_json: bool) -> None:
    """Remove RUN with its trials, states and history; a run under way is cancelled first."""
    with database(dsn) as connection:
        call(connection, "drop_run", run_id, force=is_forced)
    if as_json:
        print_json({"dropped": run_id})
    else:
        say(f"dropped run {run_id}")


COMMANDS = (select, schedulers, runs, leaderboard, cancel, resume, drop)
