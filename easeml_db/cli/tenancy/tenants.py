"""easeml tenant: which roles may train, with which weight and limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from easeml_db.cli.terminal.arguments import name_list
from easeml_db.cli.terminal.connection import database
from easeml_db.cli.terminal.listing import group_options, listing_group, read_rows
from easeml_db.cli.terminal.output import print_rows
from easeml_db.cli.terminal.statements import call

COLUMNS = {
    "tenant": "tenant", "weight": "weight", "deadline": "deadline", "n_open_runs": "open runs", "max_runs": "at most",
    "n_busy_slots": "slots", "max_slots": "at most", "used_bytes": "bytes", "max_bytes": "at most",
    "used_hours": "hours", "max_hours": "at most", "n_open_arms": "arms open", "n_waiting_arms": "waiting",
}  # fmt: skip

SETTINGS = (
    click.option("--weight", type=float, help="Share of the slots relative to other tenants (default: 1)."),
    click.option("--deadline", help="When its runs should have ended, as PostgreSQL reads times."),
    click.option("--max-runs", type=int, help="Queued and running runs at a time (default: no limit)."),
    click.option("--max-slots", type=int, help="Slots at a time (default: no limit)."),
    click.option("--max-bytes", type=int, help="Bytes of its rows, states and examples (default: no limit)."),
    click.option("--max-hours", type=float, help="Slot hours of all its units (default: no limit)."),
)


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command an option for each setting of a tenant."""
    for option in reversed(SETTINGS):
        command = option(command)
    return command


def _print_tenants(dsn: str | None, as_json: bool) -> None:
    tenants = read_rows(dsn, "tenants")
    print_rows(tenants, as_json=as_json, empty="no tenants; make one: easeml tenant create ROLE", columns=COLUMNS)


tenants = listing_group("tenant", "List tenants (without a command), or create, alter and drop them.", _print_tenants)


@tenants.command("create")
@click.argument("role")
@setting_options
@group_options
def create_tenant(role: str, dsn: str | None, as_json: bool, **settings: object) -> None:
    """Make ROLE, which exists, a tenant."""
    _change(dsn, as_json, "create_tenant", role, **settings)


@tenants.command("alter")
@click.argument("role")
@setting_options
@click.option("--clear", callback=name_list, help="Settings to set back to their default: deadline,max-runs.")
@group_options
def alter_tenant(role: str, clear: list[str] | None, dsn: str | None, as_json: bool, **settings: object) -> None:
    """Change the given settings of tenant ROLE, and leave the others."""
    cleared = [name.replace("-", "_") for name in clear] if clear else None
    _change(dsn, as_json, "alter_tenant", role, clear=cleared, **settings)


@tenants.command("drop")
@click.argument("role")
@group_options
def drop_tenant(role: str, dsn: str | None, as_json: bool) -> None:
    """Make ROLE, which must have no open runs, no longer a tenant; its data and results stay."""
    _change(dsn, as_json, "drop_tenant", role)


COMMANDS = (tenants,)


def _change(dsn: str | None, as_json: bool, function: str, role: str, **named: object) -> None:
    """Call a function of the extension, then show the tenant's new state."""
    with database(dsn) as connection:
        call(connection, function, role, **named)
    _print_tenants(dsn, as_json)
