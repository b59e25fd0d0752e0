"""easeml slots and segments: where units run. They may change while runs go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from easeml_db.cli.connection import database
from easeml_db.cli.listing import group_options, listing_group, read_rows
from easeml_db.cli.output import print_rows
from easeml_db.cli.statements import call

SLOT_COLUMNS = {
    "slot_id": "slot", "segment_name": "segment", "device": "device", "n_threads": "threads", "status": "status",
    "run_id": "run", "trial_number": "trial", "kind": "unit", "partition_number": "partition",
    "n_units_done": "units done", "lost_reason": "reason",
}  # fmt: skip
SEGMENT_COLUMNS = {
    "segment_name": "segment", "n_slots": "slots", "n_active_slots": "active", "n_partitions": "partitions",
    "n_bytes": "bytes",
}  # fmt: skip

force_option = click.option("--force", is_flag=True, help="Also when nothing else can run some partition.")


def _print_slots(dsn: str | None, as_json: bool) -> None:
    found = read_rows(dsn, "slots")
    shown = SLOT_COLUMNS if any(row["lost_reason"] for row in found) else dict(list(SLOT_COLUMNS.items())[:-1])
    print_rows(found, as_json=as_json, empty="no slots; add some: easeml slots add 2", columns=shown)


def _print_segments(dsn: str | None, as_json: bool) -> None:
    print_rows(read_rows(dsn, "segments"), as_json=as_json, empty="no segments", columns=SEGMENT_COLUMNS)


slots = listing_group("slots", "List slots (without a command), or add, drain, resume and remove them.", _print_slots)
segments = listing_group(
    "segments", "List segments (without a command), or add, drain, resume and remove them.", _print_segments
)


@slots.command("add")
@click.argument("n", type=int)
@click.option("--segment", help="Where (default: local).")
@click.option("--n-threads", type=int, help="CPU threads of each (default: 1).")
@click.option("--device", help="cpu, cpu:N (the N-th cores, for slots to share) or cuda:N (default: cpu).")
@click.option("--memory-limit-bytes", type=int, help="Memory that a unit may take (default: no limit).")
@group_options
def add_slots(n: int, dsn: str | None, as_json: bool, **named: object) -> None:
    """Add N slots; runs under way use them at once."""
    _change(dsn, as_json, "add_slots", n, **named)


def _slot_command(name: str, text: str, *, is_forced: bool = False) -> None:
    _command(slots, name, f"{name}_slot", click.argument("place", metavar="SLOT", type=int), text, is_forced=is_forced)


def _segment_command(name: str, text: str, *, is_forced: bool = False) -> None:
    _command(segments, name, f"{name}_segment", click.argument("place", metavar="SEGMENT"), text, is_forced=is_forced)


def _command(
    group: click.Group, name: str, function: str, argument: Callable[[Any], Any], text: str, *, is_forced: bool
) -> None:
    """Give a group a command that calls a function of the extension about one slot or segment."""

    @group.command(name, help=text)
    @argument
    @group_options
    def change(place: int | str, dsn: str | None, as_json: bool, **named: object) -> None:
        _change(dsn, as_json, function, place, **named)

    if is_forced:
        force_option(change)


_slot_command("drain", "Let SLOT end its unit and give it no more.", is_forced=True)
_slot_command("resume", "Give units again to SLOT, which was drained or lost.")
_slot_command("remove", "Remove SLOT at once; its unit runs again elsewhere.", is_forced=True)
_segment_command("add", "Add SEGMENT: a place that holds partitions; give it slots next.")
_segment_command("drain", "Drain all slots of SEGMENT.", is_forced=True)
_segment_command("resume", "Give units again to all slots of SEGMENT.")
_segment_command("remove", "Remove SEGMENT, which has no slots left.")


COMMANDS = (slots, segments)


def _change(dsn: str | None, as_json: bool, function: str, *arguments: Any, **named: object) -> None:
    """Call a function of the extension, then show how things stand."""
    with database(dsn) as connection:
        call(connection, function, *arguments, **named)
    show = _print_segments if function.endswith("segment") else _print_slots
    show(dsn, as_json)
