"""easeml select and run: searches from the shell."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from easeml_db.cli.search.screen import leaderboard_table
from easeml_db.cli.search.watch import watch_and_exit
from easeml_db.cli.terminal.arguments import jsonb, run_argument
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.listing import group_options, pass_on, read_rows
from easeml_db.cli.terminal.output import json_option, print_json, print_rows, say
from easeml_db.cli.terminal.plain_table import print_table
from easeml_db.cli.terminal.search_options import search_options
from easeml_db.cli.terminal.statements import call, read_run, rows, run_or_newest
from easeml_db.cli.terminal.subjects import Subjects, homes_of

RUN_COLUMNS = {
    "run_id": "run", "dataset_name": "dataset", "status": "status", "n_trials": "trials", "max_epochs": "epochs",
    "percent_done": "% done", "metric": "metric", "best_metric_value": "best", "best_trial_id": "trial",
    "elapsed_seconds": "seconds", "created_at": "asked for",
}  # fmt: skip

OF_A_RUN = {
    "search.runs": "leaderboard cancel resume drop", "search.watch": "watch", "search.report": "report",
    "search.allocations": "allocations", "search.replay": "replay", "tenancy.policy": "decisions arms",
    "cost.forecast": "forecast", "answers.evaluation": "hyperparameter-importance",
}  # fmt: skip
NEWEST_RUNS = 20


@click.command()
@click.argument("dataset")
@search_options(
    "architectures", "search_space", "procedure", "procedure_options", "n_configs", "max_epochs", "metric",
    "max_seconds", "seed", "scheduler", "visit_order", "allocation", "deadline", "max_cost", "price_list",
)  # fmt: skip
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


class RunCommands(Subjects):
    """What can be asked of a run, or done with it."""

    subjects: ClassVar[dict[str, dict[str, str]]] = {"Commands": homes_of(OF_A_RUN)}


@click.group(cls=RunCommands, invoke_without_command=True)
@click.option("--limit", "-n", type=click.IntRange(1), default=NEWEST_RUNS, show_default=True, help="How many to list.")
@group_options
@click.pass_context
def run(context: click.Context, limit: int, dsn: str | None, as_json: bool) -> None:
    """List runs, newest first (without a command), or show, continue, stop and drop one."""
    pass_on(context, dsn=dsn, as_json=as_json)
    if context.invoked_subcommand is None:
        empty = "no runs yet; start one: easeml select DATASET"
        print_rows(read_rows(dsn, "runs", limit=limit), as_json=as_json, empty=empty, columns=RUN_COLUMNS)


@click.command()
@run_argument
@dsn_option
@json_option
def leaderboard(run_id: int | None, dsn: str | None, as_json: bool) -> None:
    """Show the trials of RUN (default: the newest), best first. deploy and predict take the trial's number."""
    with database(dsn) as connection:
        shown = read_run(connection, run_or_newest(connection, run_id))
        trials = rows(connection, "leaderboard", run_id=shown["run_id"])
        summary = rows(connection, "summary", run_id=shown["run_id"])
    if as_json:
        print_json(trials)
        return
    say(
        f"run {shown['run_id']} on {shown['dataset_name']}: {shown['status']}, {shown['percent_done']} %"
        f" of {shown['n_units']} units, ranked by {shown['metric']}"
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
            changed = read_run(connection, run_id)
        if as_json:
            print_json(changed)
        else:
            say(f"run {run_id} is {changed['status']}, {changed['n_units_done']} of {changed['n_units']} units done")

    return change


cancel = _change_command(
    "cancel", "Stop RUN within a second; recorded units stay, and easeml run resume continues from there."
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


COMMANDS = (select, run, leaderboard, cancel, resume, drop)
