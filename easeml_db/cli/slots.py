"""easeml slots and segments: where units run. They may change while runs go on."""

from __future__ import annotations

from typing import Any

import click

from easeml_db.cli.connection import database, dsn_option
from easeml_db.cli.output import json_option, print_json, print_rows
from easeml_db.cli.statements import call, rows

SLOT_COLUMNS = {
    "slot_id": "slot", "segment_name": "segment", "device": "device", "n_threads": "threads", "state": "state",
    "run_id": "run", "trial_number": "trial", "kind": "unit", "partition_number": "partition",
    "n_units_done": "units done", "lost_reason": "reason",
}  # fmt: skip
SEGMENT_COLUMNS = {
    "segment_name": "segment", "n_slots": "slots", "n_active_slots": "active", "n_partitions": "partitions",
    "n_bytes": "bytes",
}  # fmt: skip

force_option = click.option("--force", is_flag=True, help="Also when nothing else can run some partition.")


@click.group(invoke_without_command=True)
@dsn_option
@json_option
@click.pass_context
def slots(context: click.Context, dsn: str | None, as_json: bool) -> None:
    """List slots (without a command), or add, drain, resume and remove them."""
    _remember(context, dsn, as_json)
    if context.invoked_subcommand is None:
        _print_slots(dsn, as_json)


@slots.command("add")
@click.argument("n", type=int)
@click.option("--segment", help="Where (default: local).")
@click.option("--n-threads", type=int, help="CPU threads of each (default: 1).")
@click.option("--device", help="cpu, cpu:N (the N-th cores, for slots to share) or cuda:N (default: cpu).")
@click.option("--memory-limit-bytes", type=int, help="Memory that a unit may take (default: no limit).")
@dsn_option
@json_option
@click.pass_context
def add_slots(context: click.Context, /, n: int, dsn: str | None, as_json: bool, **named: object) -> None:
    """Add N slots; runs under way use them at once."""
    _change(context, dsn, as_json, "add_slots", n, **named)


@slots.command("drain")
@click.argument("slot", type=int)
@force_option
@dsn_option
@json_option
@click.pass_context
def drain_slot(context: click.Context, slot: int, force: bool, dsn: str | None, as_json: bool) -> None:
    """Let SLOT end its unit and give it no more."""
    _change(context, dsn, as_json, "drain_slot", slot, force=force)


@slots.command("resume")
@click.argument("slot", type=int)
@dsn_option
@json_option
@click.pass_context
def resume_slot(context: click.Context, slot: int, dsn: str | None, as_json: bool) -> None:
    """Give units again to SLOT, which was drained or lost."""
    _change(context, dsn, as_json, "resume_slot", slot)


@slots.command("remove")
@click.argument("slot", type=int)
@force_option
@dsn_option
@json_option
@click.pass_context
def remove_slot(context: click.Context, slot: int, force: bool, dsn: str | None, as_json: bool) -> None:
    """Remove SLOT at once; its unit runs again elsewhere."""
    _change(context, dsn, as_json, "remove_slot", slot, force=force)


@click.group(invoke_without_command=True)
@dsn_option
@json_option
@click.pass_context
def segments(context: click.Context, dsn: str | None, as_json: bool) -> None:
    """List segments (without a command), or add, drain, resume and remove them."""
    _remember(context, dsn, as_json)
    if context.invoked_subcommand is None:
        _print_segments(dsn, as_json)


def _segment_command(name: str, function: str, text: str, *, is_forced: bool = False) -> None:
    @segments.command(name, help=text)
    @click.argument("segment")
    @dsn_option
    @json_option
    @click.pass_context
    def change(context: click.Context, /, segment: str, dsn: str | None, as_json: bool, **named: object) -> None:
        _change(context, dsn, as_json, function, segment, **named)

    if is_forced:
        force_option(change)


_segment_command("add", "add_segment", "Add SEGMENT: a place that holds partitions; give it slots next.")
_segment_command("drain", "drain_segment", "Drain all slots of SEGMENT.", is_forced=True)
_segment_command("resume", "resume_segment", "Give units again to all slots of SEGMENT.")
_segment_command("remove", "remove_segment", "Remove SEGMENT, which has no slots left.")


COMMANDS = (slots, segments)


def _remember(context: click.Context, dsn: str | None, as_json: bool) -> None:
    context.obj = {**(context.obj or {}), "dsn": dsn, "as_json": as_json}


def _change(
    context: click.Context, dsn: str | None, as_json: bool, function: str, *arguments: Any, **named: object
) -> None:
    """Call a function of the extension, then show how things stand."""
    dsn, as_json = dsn or context.obj["dsn"], as_json or context.obj["as_json"]
    with database(dsn) as connection:
        call(connection, function, *arguments, **named)
    show = _print_segments if function.endswith("segment") else _print_slots
    show(dsn, as_json)


def _print_slots(dsn: str | None, as_json: bool) -> None:
    with database(dsn) as connection:
        found = rows(connection, "slots")
    shown = SLOT_COLUMNS if any(row["lost_reason"] for row in found) else dict(list(SLOT_COLUMNS.items())[:-1])
    print_rows(found, as_json=as_json, empty="no slots; add some: easeml slots add 2", columns=shown)


def _print_segments(dsn: str | None, as_json: bool) -> None:
    with database(dsn) as connection:
        found = rows(connection, "segments")
    if as_json:
        print_json(found)
    else:
        print_rows(found, as_json=False, empty="no segments", columns=SEGMENT_COLUMNS)
