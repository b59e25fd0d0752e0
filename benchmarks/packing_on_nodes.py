"""Seconds until a dataset of rows on two nodes is packed `across`, relative to the same rows on one server.

Half of the images lie on each of two private servers, and the control server is a third one. Each side ends when the
dataset can be trained on: on one server when `create_dataset` returns, over the nodes when `wait_dataset` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from statistics import median

import psycopg
from measuring import Row, seconds_of, take_turns
from workload import ANALYST, N_PARTITIONS, Session, Workload, create_dataset

from easeml_db.local.nodes import remove_nodes, start_nodes
from easeml_db.local.server import SERVICE_ROLE, Embedded
from easeml_loaders import fashion_mnist_source, load_table

N_PAIRS = 7
NAMES = ("east", "west")
MOST_TIMES, MOST_BYTES = 1.5, 1.1
ROW_BYTES = 28 * 28 + 4
PLACES = json.dumps(dict.fromkeys(NAMES, "public.images"))
CREATE = """
SELECT easeml.create_dataset(%s, %s, '{image}', 'label', n_partitions => %s, input_shape => '{28,28}') AS id
"""
MOVED = "SELECT n_moved_bytes AS n FROM easeml.dataset_info WHERE dataset_id = %s"
# Dealt by a hash, every second row of a node belongs to a partition of the other one.
SHARE_MOVED = 1 - 1 / len(NAMES)


def measure(workload: Workload) -> Iterator[Row]:
    """Yield a row for the time, and one for the bytes that move."""
    source = workload.images("bytea")
    start_nodes(workload.server, NAMES)
    try:
        for number, name in enumerate(NAMES):
            _load_half(workload, Embedded(workload.server.folder / "nodes" / name), number)
        with workload.session("postgres") as owner:
            for name in NAMES:
                owner.execute("SELECT easeml.add_segment(%s, service => %s)", [name, f"pg_{name}"])
                owner.execute("SELECT easeml.add_slots(1, %s)", [name])
        with workload.coordinator(), workload.session() as session:
            yield from _rows(workload, session, source)
        with workload.session("postgres") as owner:
            for name in NAMES:
                owner.execute("SELECT easeml.remove_slot(slot_id) FROM easeml.slots WHERE segment_name = %s", [name])
                owner.execute("SELECT easeml.remove_segment(%s, true)", [name])
    finally:
        remove_nodes(workload.server)


def _load_half(workload: Workload, node: Embedded, number: int) -> None:
    """Load every second row of the source into a table of a node that a tenant and the service may read."""
    load_table(node.dsn(), fashion_mnist_source(bytes_as="bytea"), "public.images")
    with psycopg.connect(node.dsn(), autocommit=True) as owner:
        owner.execute(f"DELETE FROM images WHERE id > {workload.n_rows} OR id % {len(NAMES)} <> {number}".encode())
        owner.execute("VACUUM FULL images")
        owner.execute("ANALYZE images")
        owner.execute(f"CREATE ROLE {ANALYST}".encode())
        owner.execute(f"GRANT SELECT ON images TO {ANALYST}, {SERVICE_ROLE}".encode())
        owner.execute("CHECKPOINT")


def _rows(workload: Workload, session: Session, source: str) -> Iterator[Row]:
    names = (f"packed_{number}" for number in count(1))
    moved: list[int] = []

    def timed(create: Callable[[str], None]) -> float:
        name = next(names)
        seconds = seconds_of(lambda: create(name))
        session.execute("SELECT easeml.drop_dataset(%s)", [name])
        workload.settle()
        return seconds

    def over_nodes(name: str) -> None:
        (row,) = session.execute(CREATE, [name, PLACES, N_PARTITIONS]).fetchall()
        session.execute("CALL easeml.wait_dataset(%s)", [row["id"]])
        moved.extend(each["n"] for each in session.execute(MOVED, [row["id"]]).fetchall())

    def ours() -> float:
        return timed(over_nodes)

    def theirs() -> float:
        return timed(lambda name: create_dataset(session, name, source))

    ours(), theirs()  # the first ones import what they need
    pairs = take_turns(workload.repeats(N_PAIRS), ours, theirs)
    setting = (
        f"{workload.n_rows} images on two nodes, {median(pairs.ours):.2f} s against {median(pairs.theirs):.2f} s,"
        f" {len(pairs.ours)} pairs"
    )
    yield Row("packing over two nodes / on one server", setting, pairs.ratio, "x time", at_most=MOST_TIMES)
    n_needed = workload.n_rows * SHARE_MOVED * ROW_BYTES
    setting = f"{median(moved) / 1e6:.1f} MB, against half of the packed rows"
    times = median(moved) / n_needed
    yield Row("bytes between the nodes / of rows that move", setting, times, "x bytes", at_most=MOST_BYTES)
