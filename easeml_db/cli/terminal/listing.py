"""Commands that list the rows of a query, and groups that list something when called without a subcommand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click

from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.output import json_option, print_rows
from easeml_db.cli.terminal.statements import Row, rows

Show = Callable[[str | None, bool], None]


def read_rows(dsn: str | None, query: str, **values: object) -> list[Row]:
    """Return the rows of a query in queries/command_line.sql, read over a connection of its own."""
    with database(dsn) as connection:
        return rows(connection, query, **values)


def listing(name: str, text: str, *, columns: Mapping[str, str], empty: str, query: str | None = None) -> click.Command:
    """Make a command that prints all rows of a query, by default that of the command's name; `text` is its help."""

    @click.command(name, help=text)
    @dsn_option
    @json_option
    def command(dsn: str | None, as_json: bool) -> None:
        print_rows(read_rows(dsn, query or name), as_json=as_json, empty=empty, columns=columns)

    return command


def listing_group(name: str, text: str, show: Show) -> click.Group:
    """Make a group that shows something by itself; its commands have `group_options`."""

    @click.group(name, help=text, invoke_without_command=True)
    @group_options
    @click.pass_context
    def group(context: click.Context, dsn: str | None, as_json: bool) -> None:
        pass_on(context, dsn=dsn, as_json=as_json)
        if context.invoked_subcommand is None:
            show(dsn, as_json)

    return group


def pass_on(context: click.Context, **given: object) -> None:
    """Let the options that stand before the name of a group's command be the command's defaults."""
    context.default_map = {context.invoked_subcommand or "": given}


def group_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --dsn and --json."""
    return dsn_option(json_option(command))
