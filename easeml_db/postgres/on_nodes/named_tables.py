"""Resolves the tables that a request names into the tables that hold their rows, which engines of clusters know.

This happens at the start of each packing, refresh and prediction. Where a query on the session of any segment is about
all segments of a cluster, one session is asked, and a table that is named on several of them counts once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from typing import Any

from easeml_db.postgres.nodes.engine import Reading, Tables
from easeml_db.postgres.nodes.node_works import Fields, NodeWork
from easeml_db.postgres.nodes.nodes import Node


@asynccontextmanager
async def reading(readings: Sequence[Reading]) -> AsyncIterator[None]:
    """Check that the tables keep their places while the block reads them. Raises RowsHeld."""
    async with AsyncExitStack() as stack:
        for source in readings:
            await stack.enter_async_context(source.read())
        yield


async def resolve(job: Fields) -> list[Reading]:
    """Put the tables that hold the rows into the places of a job. Raises EasemlError.

    Takes `peers`, the segments of the same engines, out of it: no node learns about others.
    """
    entries: dict[str, Any] = job.pop("peers", None) or {}
    nodes = {name: Node(**entry) for name, entry in entries.items()}
    if not nodes:
        return []
    named: Tables = job["places"]
    readings, left = [], dict(named)
    for engine in sorted({node.engine for node in nodes.values()}):
        peers = {name: node for name, node in nodes.items() if node.engine == engine}
        named_there = {name: tables for name, tables in named.items() if name in peers}
        tables_read = await next(iter(peers.values())).kind.resolve(job["role"], named_there, peers)
        if tables_read is not None:
            readings.append(tables_read)
            left = {name: tables for name, tables in left.items() if name not in named_there}
    if readings:
        job["places"] = merged(left, *(tables_read.tables for tables_read in readings))
        job["nodes"] = job["nodes"] | {name: entries[name] for name in job["places"] if name in entries}
    return readings


def merged(*places: Tables) -> Tables:
    """Return the tables of all places, each once, in their order.

    >>> merged({"west": ["b"]}, {"east": ["c"], "west": ["a", "b"]})
    {'east': ['c'], 'west': ['a', 'b']}
    """
    names = sorted(set(chain.from_iterable(places)))
    return {name: sorted(set(chain.from_iterable(tables.get(name, []) for tables in places))) for name in names}


async def each_cluster_once(job: Fields, works: Mapping[str, NodeWork]) -> dict[str, NodeWork]:
    """Put all tables of a cluster into the places of the first of its segments; return the sessions that are left."""
    first: dict[str, str] = {}
    places: list[Tables] = []
    for name, work in sorted(works.items()):
        cluster = await work.node.kind.cluster_of(work)
        places.append({first.setdefault(cluster, name) if cluster else name: job["places"][name]})
    job["places"] = merged(*places)
    return {name: work for name, work in works.items() if name in job["places"]}
