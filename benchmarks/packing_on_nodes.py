"""Seconds until a dataset of rows on two nodes is packed `across`, relative to the same rows on one server.

Half of the rows lie on each of two private servers, and the control server is a third one. Each side ends when the
dataset can be trained on: on one server when `create_dataset` returns, over the nodes when `wait_dataset` does. On both
sides labelled images are held in memory, ordinary rows lie in temporary tables, and sessions have packed before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from statistics import median

import psycopg
from comparison.measuring import Row, seconds_of, take_turns
from workload import ANALYST, N_PARTITIONS, Session, Workload

from easeml_db.local.nodes import remove_nodes, start_nodes
from easeml_db.local.server import Embedded
from easeml_loaders import fashion_mnist_source, load_table

N_PAIRS = 7
NAMES = ("east", "west")
MOST_TIMES, MOST_BYTES = 1.5, 1.1
ROW_BYTES = 28 * 28 + 4
CREATE = """
SELECT easeml.create_dataset(%s, %s, %s, 'label', n_partitions => %s, input_shape => %s) AS id
"""
MOVED = "SELECT n_moved_bytes AS n FROM easeml.dataset_info WHERE dataset_id = %s"
# Dealt by a hash, every second row of a node belongs to a partition of the other one.
SHARE_MOVED = 1 - 1 / len(NAMES)
ORDINARY = """
CREATE TABLE ordinary AS SELECT i AS id, sin(i)::real AS a, cos(i)::real AS b, i % 100 AS c, sqrt(i) AS d,
    i % 2 = 0 AS e, (ARRAY['clay', 'sand', 'peat'])[1 + i % 3] AS soil,
    (ARRAY['no', 'yes'])[1 + (i::bigint * 7919 % 1000 > 500)::int] AS label
FROM generate_series(1, {}) i
"""
FREE = """
SELECT easeml.remove_slot(slot_id) FROM easeml.slot_status WHERE segment_name = %s
"""


@dataclass(frozen=True)
class Source:
    """What is packed: a table that is on the control server and, in halves, on the nodes."""

    table: str
    inputs: str
    shape: str | None
    what: str


IMAGES = Source("images_bytea", "{image}", "{28,28}", "images")
ROWS = Source("ordinary", "{a,b,c,d,e,soil}", None, "rows of six columns")


def measure(workload: Workload) -> Iterator[Row]:
    """Yield two rows for the time, and one for the bytes that move."""
    workload.images("bytea")
    n_rows = 10_000 if workload.is_quick else 400_000
    _make_rows(workload.server.dsn(), n_rows)
    start_nodes(workload.server, NAMES)
    try:
        for number, name in enumerate(NAMES):
            _load_half(Embedded(workload.server.folder / "nodes" / name), number, workload.n_rows, n_rows)
        with workload.session("postgres") as owner:
            for name in NAMES:
                owner.execute("SELECT easeml.add_segment(%s, service => %s)", [name, f"pg_{name}"])
                owner.execute("SELECT easeml.add_slots(1, %s)", [name])
        with workload.coordinator(), workload.session() as session:
            moved: list[int] = []
            yield _row(workload, session, IMAGES, workload.n_rows, moved)
            yield _moved(median(moved), workload.n_rows)
            yield _row(workload, session, ROWS, n_rows, [])
        with workload.session("postgres") as owner:
            for name in NAMES:
                owner.execute(FREE, [name])
                owner.execute("SELECT easeml.remove_segment(%s, true)", [name])
    finally:
        remove_nodes(workload.server)


def _moved(n_bytes: float, n_rows: int) -> Row:
    setting = f"{n_bytes / 1e6:.1f} MB of images, against half of the packed rows"
    times = n_bytes / (n_rows * SHARE_MOVED * ROW_BYTES)
    return Row("bytes between nodes / of rows that move", setting, times, "x bytes", at_most=MOST_BYTES)


def _make_rows(dsn: str, n_rows: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("DROP TABLE IF EXISTS ordinary")
        owner.execute(ORDINARY.format(n_rows).encode())
        owner.execute(f"GRANT SELECT ON ordinary TO {ANALYST}".encode())
        owner.execute("ANALYZE ordinary")


def _load_half(node: Embedded, number: int, n_images: int, n_rows: int) -> None:
    """Load every second row of both sources into tables of a node that a tenant and its reader may read."""
    with psycopg.connect(node.dsn(), autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {ANALYST}".encode())
        owner.execute(f"CREATE ROLE easeml_reads_{ANALYST} IN ROLE easeml_rows ROLE easeml_segment".encode())
    load_table(node.dsn(), fashion_mnist_source(bytes_as="bytea"), f"public.{IMAGES.table}")
    _make_rows(node.dsn(), n_rows)
    with psycopg.connect(node.dsn(), autocommit=True) as owner:
        for source, most in ((IMAGES, n_images), (ROWS, n_rows)):
            table = source.table
            owner.execute(f"DELETE FROM {table} WHERE id > {most} OR id % {len(NAMES)} <> {number}".encode())
            owner.execute(f"VACUUM FULL {table}".encode())
            owner.execute(f"ANALYZE {table}".encode())
            owner.execute(f"GRANT SELECT ON {table} TO {ANALYST}, easeml_reads_{ANALYST}".encode())
        owner.execute("CHECKPOINT")


def _row(workload: Workload, session: Session, source: Source, n_rows: int, moved: list[int]) -> Row:
    names = (f"packed_{number}" for number in count(1))
    places = json.dumps(dict.fromkeys(NAMES, f"public.{source.table}"))

    def create(name: str, place: str) -> int:
        (row,) = session.execute(CREATE, [name, place, source.inputs, N_PARTITIONS, source.shape]).fetchall()
        return int(row["id"])

    def over_nodes(name: str) -> None:
        dataset_id = create(name, places)
        session.execute("CALL easeml.wait_dataset(%s)", [dataset_id])
        moved.extend(row["n"] for row in session.execute(MOVED, [dataset_id]).fetchall())

    def timed(work: Callable[[str], object]) -> float:
        name = next(names)
        workload.settle()
        seconds = seconds_of(lambda: work(name))
        session.execute("SELECT easeml.drop_dataset(%s)", [name])
        return seconds

    def ours() -> float:
        return timed(over_nodes)

    def theirs() -> float:
        return timed(lambda name: create(name, source.table))

    ours(), theirs()  # the first ones import what they need
    pairs = take_turns(workload.repeats(N_PAIRS), ours, theirs)
    seconds = f"{median(pairs.ours):.2f} s against {median(pairs.theirs):.2f} s, {len(pairs.ours)} pairs"
    setting = f"{n_rows} {source.what}, {seconds}"
    return Row("packing over two nodes / on one server", setting, pairs.ratio, "x time", at_most=MOST_TIMES)
