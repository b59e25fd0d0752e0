"""easeml run replay: check that a trial, trained again along its stored visit order, gives the same bytes."""

from __future__ import annotations

from typing import Any

import click

from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.output import json_option, print_json, say

CALL = "CALL easeml.replay(%s, device => %s, n_threads => %s, until_epoch => %s)"


@click.command()
@click.argument("trial_id", metavar="TRIAL", type=int)
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda:N, of the server.")
@click.option("--threads", "n_threads", default=1, show_default=True, help="CPU threads, as many as its slots had.")
@click.option("--until-epoch", type=int, help="Stop after that epoch (default: all that is recorded).")
@dsn_option
@json_option
@click.pass_context
def replay(
    context: click.Context, trial_id: int, device: str, n_threads: int, until_epoch: int | None, dsn: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Train TRIAL (its trial_id) again along its stored visit order and compare every state; writes nothing.

    Exit code 0 when all states are identical, 1 when one differs.
    """
    with database(dsn) as connection:
        row = connection.execute(CALL, [trial_id, device, n_threads, until_epoch]).fetchone() or {}
    result = row["result"]
    if as_json:
        print_json(result)
    else:
        say(verdict(result))
    context.exit(0 if result["is_identical"] else 1)


def verdict(result: dict[str, Any]) -> str:
    """Return the result of a replay in one line."""
    if result["is_identical"]:
        return f"identical: {result['n_units']} units, state {result['final_sha256'][:12]}"
    first = result["first_difference"]
    where = f"epoch {first['epoch']}, position {first['position']}, partition {first['partition_number']}"
    hashes = f"stored {first['stored_sha256'][:12]}, replayed {first['replayed_sha256'][:12]}"
    return f"different: {result['n_matching']} of {result['n_units']} units identical; first at {where}: {hashes}"


COMMANDS = (replay,)
