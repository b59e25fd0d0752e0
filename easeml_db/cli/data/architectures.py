"""easeml architecture: networks from installed packages that an administrator registers beside easeml's own."""

from __future__ import annotations

from typing import Any

import click

from easeml_db.cli.terminal.arguments import json_value, jsonb
from easeml_db.cli.terminal.connection import database
from easeml_db.cli.terminal.listing import group_options, listing_group, read_rows
from easeml_db.cli.terminal.output import print_rows
from easeml_db.cli.terminal.statements import call

COLUMNS = {
    "architecture": "architecture", "entry_point": "entry point", "templates": "kinds of tasks",
    "registered_at": "registered", "withdrawn_at": "withdrawn", "summary": "summary",
}  # fmt: skip


def _print_architectures(dsn: str | None, as_json: bool) -> None:
    empty = "none registered; those of easeml itself: SELECT * FROM easeml.architectures"
    print_rows(read_rows(dsn, "architectures"), as_json=as_json, empty=empty, columns=COLUMNS)


architecture = listing_group(
    "architecture", "List registered architectures (without a command), register or withdraw one.", _print_architectures
)


@architecture.command()
@click.argument("name")
@click.argument("entry_point")
@click.option("--program", "programs", multiple=True, required=True, help="A program to try it for; may be repeated.")
@click.option("--hyperparameters", callback=json_value, help="Its hyperparameters as JSON (or @FILE).")
@click.option("--summary", help="What it is, in a sentence.")
@group_options
def register(
    name: str, entry_point: str, programs: tuple[str, ...], hyperparameters: Any, summary: str | None,
    dsn: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Register architecture NAME, which ENTRY_POINT (package.module:function) of an installed package builds."""
    with database(dsn) as connection:
        call(
            connection, "register_architecture", name, entry_point, list(programs),
            hyperparameters=jsonb(hyperparameters), summary=summary,
        )  # fmt: skip
    _print_architectures(dsn, as_json)


@architecture.command()
@click.argument("name")
@group_options
def withdraw(name: str, dsn: str | None, as_json: bool) -> None:
    """Withdraw architecture NAME: no later run gets it, and trials trained before still answer."""
    with database(dsn) as connection:
        call(connection, "withdraw_architecture", name)
    _print_architectures(dsn, as_json)


COMMANDS = (architecture,)
