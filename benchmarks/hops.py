"""A hop of a state between two nodes beside a plain binary COPY out of one and into the other, of the same bytes.

Both go through this machine, from private server to private server, by turns. The plain copy is a loop over two
connections without asyncio, into a table of the same columns that nothing refers to; the hop is what the coordinator
does: it names the state, is there as a whole or not at all, gives up on a silent server, and does not wait for one
side while the other is at work.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from statistics import median

import psycopg
from comparison.measuring import Row
from workload import Workload

from easeml_db.local.nodes import remove_nodes, start_nodes
from easeml_db.local.server import Embedded
from easeml_db.postgres.nodes.engine import connect_server
from easeml_db.postgres.nodes.node_store import Connection, KnownState
from easeml_db.postgres.nodes.nodes import node_dsn
from easeml_db.postgres.nodes.segment_store import SegmentStore
from easeml_db.postgres.nodes.transfers import bring_state

NAMES = ("east", "west")
MOST_TIMES = 1.2
SIZES = ((1, 60), (50, 12), (300, 4))  # megabytes, pairs
MEGABYTE = 1 << 20
NEW = """
INSERT INTO easeml_segment.checkpoints (checkpoint_id, trial_id, lease_number, n_bytes, sha256)
VALUES (%s, 1, 1, %s, %s)
"""
CHUNK = "INSERT INTO easeml_segment.checkpoint_chunks VALUES (1, %s, %s)"
OUT = "COPY (SELECT * FROM easeml_segment.checkpoint_chunks ORDER BY chunk_number) TO STDOUT (FORMAT binary)"
PLAIN = """
CREATE TABLE public.plain (checkpoint_id bigint, chunk_number integer, bytes bytea);
ALTER TABLE public.plain ALTER bytes SET STORAGE EXTERNAL
"""


def measure(workload: Workload) -> Iterator[Row]:
    """Yield a row for each size."""
    start_nodes(workload.server, NAMES)
    try:
        for n_megabytes, n_pairs in SIZES[: 1 if workload.is_quick else None]:
            dsns = [Embedded(workload.server.folder / "nodes" / name).dsn() for name in NAMES]
            yield asyncio.run(_row(dsns, n_megabytes, workload.repeats(n_pairs)))
    finally:
        remove_nodes(workload.server)


async def _row(dsns: list[str], n_megabytes: int, n_pairs: int) -> Row:
    east, west = [await connect_server(node_dsn(f"pg_{name}"), "benchmark", {}) for name in NAMES]
    state = await _store(east, n_megabytes)
    ratios, hops = [], []
    with psycopg.connect(dsns[0], autocommit=True) as source, psycopg.connect(dsns[1], autocommit=True) as target:

        async def plain() -> None:
            _copy(source, target)

        async def hop() -> None:
            await bring_state(SegmentStore(east), SegmentStore(west), state, 1)

        for pair in range(n_pairs):
            seconds = {}
            for each in (plain, hop) if pair % 2 else (hop, plain):
                await _clear(west, target)
                seconds[each.__name__] = await _timed(each)
            ratios.append(seconds["hop"] / seconds["plain"])
            hops.append(seconds["hop"])
    await east.execute("DELETE FROM easeml_segment.checkpoints")
    for connection in (east, west):
        await connection.close()
    setting = f"{n_megabytes} MB, a hop takes {median(hops):.3f} s; median of {n_pairs} pairs"
    return Row("hop of a state / plain binary COPY", setting, median(ratios), "x time", at_most=MOST_TIMES)


async def _store(node: Connection, n_megabytes: int) -> KnownState:
    """Have a state of random bytes on a node."""
    chunks = [os.urandom(MEGABYTE) for _ in range(n_megabytes)]
    digest = sha256(b"".join(chunks)).hexdigest()
    await node.execute("DELETE FROM easeml_segment.checkpoints")
    await node.execute(NEW.encode(), [1, n_megabytes * MEGABYTE, digest])
    for number, chunk in enumerate(chunks):
        await node.execute(CHUNK.encode(), [number, chunk])
    return KnownState(1, 1, n_megabytes * MEGABYTE, digest)


async def _clear(west: Connection, target: psycopg.Connection) -> None:
    await west.execute("DELETE FROM easeml_segment.checkpoints")
    await west.execute("VACUUM easeml_segment.checkpoints, easeml_segment.checkpoint_chunks")
    target.execute("DROP TABLE IF EXISTS public.plain")
    target.execute(PLAIN.encode())


def _copy(source: psycopg.Connection, target: psycopg.Connection) -> None:
    with (
        source.cursor().copy(OUT) as rows,
        target.cursor().copy("COPY public.plain FROM STDIN (FORMAT binary)") as written,
    ):
        for piece in rows:
            written.write(piece)


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began
