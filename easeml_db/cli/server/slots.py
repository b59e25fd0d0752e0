"""easeml slot: where units run. They may change while runs go on."""

from __future__ import annotations

import click

from easeml_db.cli.server.topology_commands import place_command
from easeml_db.cli.terminal.connection import database
from easeml_db.cli.terminal.listing import group_options, listing_group, read_rows
from easeml_db.cli.terminal.output import print_rows
from easeml_db.cli.terminal.statements import call

SLOT_COLUMNS = {
    "slot_id": "slot", "segment_name": "segment", "device": "device", "n_threads": "threads", "status": "status",
    "run_id": "run", "trial_number": "trial", "kind": "unit", "partition_number": "partition",
    "n_units_done": "units done", "lost_reason": "reason",
}  # fmt: skip


def _print_slots(dsn: str | None, as_json: bool) -> None:
    slots = read_rows(dsn, "slots")
    shown = SLOT_COLUMNS if any(row["lost_reason"] for row in slots) else dict(list(SLOT_COLUMNS.items())[:-1])
    print_rows(slots, as_json=as_json, empty="no slots; add some: easeml slot add 2", columns=shown)


slots = listing_group("slot", "List slots (without a command), or add, drain, resume and remove them.", _print_slots)


@slots.command("add")
@click.argument("n", type=int)
@click.option("--segment", help="Where (default: local).")
@click.option("--n-threads", type=int, help="CPU threads of each (default: 1).")
@click.option("--device", help="cpu, cpu:N (the N-th cores, for slots to share) or cuda:N (default: cpu).")
@click.option("--memory-limit-bytes", type=int, help="Memory of a unit (default: its share; on a GPU no limit).")
@group_options
def add_slots(n: int, dsn: str | None, as_json: bool, **named: object) -> None:
    """Add N slots; runs under way use them at once."""
    with database(dsn) as connection:
        call(connection, "add_slots", n, **named)
    _print_slots(dsn, as_json)


def _slot_command(name: str, text: str, *, is_forced: bool = False) -> None:
    argument = click.argument("place", metavar="SLOT", type=int)
    place_command(slots, f"{name}_slot", argument, text, _print_slots, is_forced=is_forced)


_slot_command("drain", "Let SLOT finish its unit, and give it no more units.", is_forced=True)
_slot_command("resume", "Give units again to SLOT, which was drained or lost.")
_slot_command("remove", "Remove SLOT at once; its unit runs again elsewhere.", is_forced=True)
COMMANDS = (slots,)
