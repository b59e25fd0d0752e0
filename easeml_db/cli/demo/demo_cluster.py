"""The extra steps of the demonstration on three private servers, two of which hold rows and states."""

from __future__ import annotations

from dataclasses import replace

from easeml_db.cli.demo.demo_console import DemoConsole
from easeml_db.cli.demo.demo_subjects import SUBJECTS, Subject
from easeml_db.cli.terminal.output import print_rows
from easeml_db.cli.terminal.statements import Connection, call, rows

NODES = ("east", "west")
PLACED = """\
SELECT partition_number, n_train_rows, holders FROM easeml.partition_status
WHERE dataset_name = '{}' ORDER BY partition_number"""
TRAFFIC = """\
SELECT n_units, n_hops, bytes_hopped, bytes_stored FROM easeml.run_traffic WHERE run_id = {}"""


def cluster_subject() -> Subject:
    """Return the subject of the demo: digits, bound to the segments that hold them."""
    return replace(SUBJECTS["digits"], dataset="digits_on_nodes", options=",\n    placement => 'bound'")


def add_nodes(connection: Connection, console: DemoConsole) -> None:
    """Add the nodes as segments with a slot each, and remove the control server's slots."""
    console.step("Two more servers: segments with slots of their own, named by libpq services")
    there = {row["segment_name"] for row in rows(connection, "segments")}
    for name in NODES:
        if name not in there:
            console.execute(connection, f"SELECT easeml.add_segment('{name}', service => 'pg_{name}')")
            console.execute(connection, f"SELECT easeml.add_slots(1, '{name}')")
    for slot in rows(connection, "slots"):
        if slot["segment_name"] == "local":
            call(connection, "remove_slot", slot["slot_id"], True)


def show_places(connection: Connection, dataset: str, console: DemoConsole) -> None:
    """Show which server has which partition."""
    console.step("Each partition lies on one of them, and is trained there")
    print_rows(console.execute(connection, PLACED.format(dataset)), as_json=False, empty="")


def show_traffic(connection: Connection, run_id: int, console: DemoConsole) -> None:
    """Show how much state went from server to server."""
    console.step("States hopped between the servers; rows did not")
    print_rows(console.execute(connection, TRAFFIC.format(run_id)), as_json=False, empty="")
