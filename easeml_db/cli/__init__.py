"""The command `easeml`: the one place that wires everything. Exit codes: 0 done, 1 failed, 2 wrong usage."""

from __future__ import annotations

import sys
from typing import Any

import click

from easeml_db import __version__
from easeml_db.cli import (
    allocations,
    coordinator,
    datasets,
    demo,
    doctor,
    evaluation,
    exports,
    forecast,
    plan,
    policy,
    predict,
    prices,
    procedures,
    replay,
    report,
    runs,
    server,
    slots,
    tenants,
    watch,
)
from easeml_db.cli.installed_commands import further_commands
from easeml_db.cli.load import load
from easeml_db.cli.output import print_error
from easeml_db.errors import EasemlError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="easeml")
@click.option("--debug", is_flag=True, help="Show a traceback instead of a one-line error.")
@click.pass_context
def commands(context: click.Context, debug: bool) -> None:
    """Select, train and serve models where the data lives: inside PostgreSQL."""
    context.obj = {"debug": debug}


for module in (
    server,
    coordinator,
    datasets,
    runs,
    allocations,
    slots,
    tenants,
    policy,
    watch,
    report,
    replay,
    predict,
    evaluation,
    exports,
    procedures,
    plan,
    forecast,
    prices,
    doctor,
    demo,
):
    for command in module.COMMANDS:
        commands.add_command(command)
commands.add_command(load)
for command in further_commands():
    commands.add_command(command)


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
