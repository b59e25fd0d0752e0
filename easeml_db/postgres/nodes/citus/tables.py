"""Tables of Citus clusters among the sources: any worker knows where all shards lie, so one is asked for each table.

Each packing, refresh and prediction resolves them anew. A shard that moves while it is read stays readable at its old
place, and the reader starts again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from easeml_db.errors import EasemlError, NotReady, RowsHeld, ServerUnavailable
from easeml_db.postgres.nodes.citus.shards import (
    OnNoSegment,
    Placed,
    Shard,
    ShardPlacement,
    Shards,
    Worker,
    gone,
    shards_of,
)
from easeml_db.postgres.nodes.engine import Tables
from easeml_db.postgres.nodes.node_works import NodeWork, all_of, node_work
from easeml_db.postgres.nodes.nodes import Node

HAS_CITUS = "SELECT count(*) AS n FROM pg_extension WHERE extname = 'citus'"
WHO = """
SELECT x.extversion AS version, current_database()::text AS database, n.groupid, n.nodename, n.nodeport
FROM pg_extension x CROSS JOIN pg_dist_local_group g
JOIN pg_dist_node n ON n.groupid = g.groupid AND n.noderole = 'primary' WHERE x.extname = 'citus'
"""
PLACEMENTS = """
SELECT format('%%I.%%I', n.nspname, c.relname) AS relation, c.relkind::text AS kind, m.amname::text AS method,
    p.partmethod::text AS partition_method, p.repmodel::text AS replication_model, p.colocationid AS colocation,
    EXISTS (SELECT FROM pg_roles r WHERE r.rolname = %s AND has_schema_privilege(r.oid, n.oid, 'USAGE')
        AND has_any_column_privilege(r.oid, c.oid, 'SELECT')) AS is_readable,
    s.shardid AS shard_id, format('%%I.', n.nspname) || quote_ident(i.words[cardinality(i.words)]) AS shard,
    w.groupid, w.nodename, w.nodeport
FROM (SELECT to_regclass(%s) AS relid UNION SELECT relid FROM pg_partition_tree(to_regclass(%s))) t
JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_am m ON m.oid = c.relam
LEFT JOIN pg_dist_partition p ON p.logicalrelid = c.oid LEFT JOIN pg_dist_shard s ON s.logicalrelid = c.oid
LEFT JOIN LATERAL (SELECT parse_ident(shard_name(c.oid, s.shardid)) AS words WHERE s.shardid IS NOT NULL) i ON true
LEFT JOIN pg_dist_placement l ON l.shardid = s.shardid AND l.shardstate = 1
LEFT JOIN pg_dist_node w ON w.groupid = l.groupid AND w.noderole = 'primary'
WHERE c.relkind <> 'p' ORDER BY 1, s.shardid, w.groupid
"""
STILL_THERE = """
SELECT p.shardid AS shard_id FROM pg_dist_placement p JOIN pg_dist_local_group g USING (groupid)
WHERE p.shardid = ANY (%s) AND p.shardstate = 1
"""


class ReadShards:
    """The shards that stand for tables of clusters, and the tables to be read by segment: those, and plain ones."""

    def __init__(self, workers: Mapping[str, Node], shards: Shards, tables: Tables) -> None:
        self._workers, self._shards, self.tables = workers, shards, tables

    @asynccontextmanager
    async def read(self) -> AsyncIterator[None]:
        """Check after the block that no shard has moved meanwhile. Raises RowsHeld."""
        try:
            yield
        except EasemlError:
            await self._check()  # a shard that has left its worker has no table there
            raise
        await self._check()

    async def _check(self) -> None:
        await all_of(self._check_one(self._workers[name], shards) for name, shards in self._shards.items())

    async def _check_one(self, node: Node, shards: list[Shard]) -> None:
        async with node_work(node, "placements") as work:
            rows = await work.execute(STILL_THERE, [shard.shard_id for shard in shards])
        if left := gone(shards, {row["shard_id"] for row in rows}):
            raise RowsHeld(f"segment {node.segment_name}: shard {left[0]} has moved, its table is resolved again")


async def resolve(role: str, named: Tables, workers: Mapping[str, Node]) -> ReadShards:
    """Return the shards of tables that are named on workers. Raises EasemlError.

    A table that is named on several of them counts once.
    """
    segments, away = await _look_at(workers)
    places: dict[str, set[str]] = {}
    shards: dict[str, set[Shard]] = {}
    for asked, tables in named.items():
        for table in tables:
            if asked not in {placed.segment for placed in segments}:
                raise away[asked]
            of_table = await _shards(role, workers[asked], table, segments, away)
            if of_table is None:
                places.setdefault(asked, set()).add(table)
            for segment, segment_shards in (of_table or {}).items():
                places.setdefault(segment, set()).update(shard.table for shard in segment_shards)
                shards.setdefault(segment, set()).update(segment_shards)
    shards_by_segment = {segment: sorted(segment_shards) for segment, segment_shards in shards.items()}
    return ReadShards(workers, shards_by_segment, {segment: sorted(tables) for segment, tables in places.items()})


async def _look_at(workers: Mapping[str, Node]) -> tuple[list[Placed], dict[str, EasemlError]]:
    """Return the workers that the segments are, and the errors of the other segments."""
    away: dict[str, EasemlError] = {}

    async def look(name: str, node: Node) -> Placed | None:
        try:
            async with node_work(node, "placements") as work:
                return await _placed(work)
        except EasemlError as error:
            away[name] = error
            return None

    answers = await all_of(look(name, node) for name, node in workers.items())
    return [placed for placed in answers if placed is not None], away


async def _placed(work: NodeWork) -> Placed:
    name = work.node.segment_name
    if not (await work.execute(HAS_CITUS))[0]["n"]:
        raise NotReady(f"segment {name}: its database has no extension citus, and the segment says engine => 'citus'")
    rows = await work.execute(WHO)
    if not rows:
        hint = "On the coordinator: SELECT citus_add_node('host', port)."
        raise NotReady(f"segment {name}: its Citus knows no cluster that it belongs to", hint=hint)
    return Placed(name, _worker(rows[0]), rows[0]["database"], rows[0]["version"])


def _worker(row: Mapping[str, Any]) -> Worker:
    return Worker(row["groupid"], row["nodename"], row["nodeport"])


async def _shards(
    role: str, node: Node, table: str, segments: list[Placed], away: Mapping[str, EasemlError]
) -> Shards | None:
    async with node_work(node, "placements") as work:
        rows = await work.execute(PLACEMENTS, role, table, table)
    try:
        return shards_of(table, role, node.segment_name, placements_of(rows), segments)
    except OnNoSegment:
        # The shard may lie on a segment that does not answer or is refused: its error is the cause.
        for error in sorted(away.values(), key=lambda error: not isinstance(error, ServerUnavailable)):
            raise error from None
        raise


def placements_of(rows: Iterable[Mapping[str, Any]]) -> list[ShardPlacement]:
    """Return the rows of PLACEMENTS as values."""
    return [
        ShardPlacement(
            row["relation"],
            row["kind"],
            row["method"],
            None
            if row["partition_method"] is None
            else (row["partition_method"], row["replication_model"], row["colocation"]),
            row["is_readable"],
            row["shard_id"],
            row["shard"],
            None if row["groupid"] is None else _worker(row),
        )
        for row in rows
    ]
