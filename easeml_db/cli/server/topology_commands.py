"""Commands on one slot or segment: each calls a function of the extension, then shows the new state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from easeml_db.cli.terminal.connection import database
from easeml_db.cli.terminal.listing import Show, group_options
from easeml_db.cli.terminal.statements import call

force_option = click.option("--force", is_flag=True, help="Do it even if nothing else can run some partition.")


def place_command(
    group: click.Group, function: str, argument: Callable[[Any], Any], text: str, show: Show, is_forced: bool = False
) -> None:
    """Give a group the command that a function is named for: drain_slot is drain."""

    @group.command(function.partition("_")[0], help=text)
    @argument
    @group_options
    def change(place: int | str, dsn: str | None, as_json: bool, **named: object) -> None:
        with database(dsn) as connection:
            call(connection, function, place, **named)
        show(dsn, as_json)

    if is_forced:
        force_option(change)
