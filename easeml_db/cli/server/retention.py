"""easeml retention and prune: set how long old rows are kept, and remove them."""

from __future__ import annotations

from typing import Any

import click

from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.listing import read_rows
from easeml_db.cli.terminal.output import json_option, print_rows, say
from easeml_db.cli.terminal.statements import Connection, call, rows

FOREVER = "forever"
RETENTION_COLUMNS = {"what": "what", "keep": "kept for", "is_default": "default", "summary": "what it is"}
PRUNED_COLUMNS = {"what": "what", "keep": "kept for", "n_rows": "rows"}


@click.command(context_settings={"ignore_unknown_options": True})  # '-3 days' is an interval, if none to keep for
@click.argument("what", required=False)
@click.argument("keep", required=False, metavar="[INTERVAL]")
@dsn_option
@json_option
def retention(what: str | None, keep: str | None, dsn: str | None, as_json: bool) -> None:
    """List how long old rows are kept, or keep WHAT for an INTERVAL such as '90 days', or forever."""
    if (what is None) != (keep is None):
        raise click.UsageError("WHAT and INTERVAL go together: easeml retention units '90 days'")
    if what is not None:
        with database(dsn) as connection:
            call(connection, "set_retention", what, None if keep == FOREVER else keep)
    settings = [_readable(row) for row in read_rows(dsn, "retention")]
    print_rows(settings, as_json=as_json, empty="nothing", columns=RETENTION_COLUMNS)


@click.command()
@click.argument("what", nargs=-1)
@click.option("--yes", "is_meant", is_flag=True, help="Remove the rows; without it they are only counted.")
@dsn_option
@json_option
def prune(what: tuple[str, ...], is_meant: bool, dsn: str | None, as_json: bool) -> None:
    """Count what is older than easeml retention allows, of WHAT or of everything; with --yes, remove it.

    It works in short transactions, never waits for others, and can be interrupted at any time.
    """
    with database(dsn) as connection:
        kept = {row["what"]: _readable(row)["keep"] for row in rows(connection, "retention")}
        removed = [
            {"what": one, "keep": kept.get(one), "n_rows": _prune(connection, one, is_dry=not is_meant)}
            for one in what or kept
        ]
    print_rows(removed, as_json=as_json, empty="nothing", columns=PRUNED_COLUMNS)
    if not is_meant and not as_json:
        say("nothing was removed yet: easeml prune --yes does it")


def _prune(connection: Connection, what: str, *, is_dry: bool) -> int:
    """Remove or count something, batch by batch; return the number of rows."""
    n_rows, last = 0, 0
    while last is not None:
        (batch,) = rows(connection, "prune_batch", what=what, after=last, is_dry=is_dry)
        n_rows, last = n_rows + batch["n_rows"], batch["last"]
    return n_rows


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "keep": row["keep"] or FOREVER}


COMMANDS = (retention, prune)
