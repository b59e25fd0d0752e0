"""The command `easeml`: the one place that wires everything. Exit codes: 0 done, 1 failed, 2 wrong usage."""

from __future__ import annotations

import sys
from typing import Any

import click

from easeml_db import __version__
from easeml_db.cli import (
    allocations,
    architectures,
    backup,
    console,
    coordinator,
    datasets,
    demo,
    doctor,
    drift,
    evaluation,
    exports,
    forecast,
    plan,
    policy,
    predict,
    prices,
    procedures,
    refreshes,
    replay,
    report,
    retention,
    runs,
    segments,
    server,
    slots,
    tasks,
    tenants,
    watch,
)
from easeml_db.cli.installed_commands import further_commands
from easeml_db.cli.load import load
from easeml_db.cli.output import print_error
from easeml_db.cli.subjects import Subjects
from easeml_db.errors import EasemlError


@click.group(cls=Subjects, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="easeml")
@click.option("--debug", is_flag=True, help="Show a traceback instead of a one-line error.")
@click.pass_context
def commands(context: click.Context, debug: bool) -> None:
    """Select, train and serve models where the data lives: inside PostgreSQL."""
    context.obj = {"debug": debug}


SUBJECTS = {
    "Server": (*server.COMMANDS, *coordinator.COMMANDS, *doctor.COMMANDS, *slots.COMMANDS, *segments.COMMANDS,
               *retention.COMMANDS, *backup.COMMANDS),
    "Data": (load, *datasets.COMMANDS, *refreshes.COMMANDS, *tasks.COMMANDS, *architectures.COMMANDS),
    "Search": (*runs.COMMANDS, *watch.COMMANDS, *report.COMMANDS, *console.COMMANDS, *procedures.COMMANDS,
               *allocations.COMMANDS, *replay.COMMANDS),
    "Cost and time": (*plan.COMMANDS, *forecast.COMMANDS, *prices.COMMANDS),
    "Answers": (*predict.COMMANDS, *evaluation.COMMANDS, *drift.COMMANDS, *exports.COMMANDS),
    "Tenants": (*tenants.COMMANDS, *policy.COMMANDS),
    "Trying it": (*demo.COMMANDS, *further_commands()),
}  # fmt: skip
for title, subject in SUBJECTS.items():
    commands.add_subject(title, subject)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; turn errors into one line each, on standard error."""
    is_debug = "--debug" in (arguments if arguments is not None else sys.argv)
    try:
        commands.main(args=arguments, prog_name="easeml")
    except EasemlError as error:
        if is_debug:
            raise
        print_error(error)
        sys.exit(1)
