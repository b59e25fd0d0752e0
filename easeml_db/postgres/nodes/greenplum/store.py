"""The rows and states of a segment of a Greenplum cluster, in tables that are distributed by the keys of segments."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from easeml_db.errors import NotReady
from easeml_db.postgres.nodes.greenplum.facts import hold, look
from easeml_db.postgres.nodes.greenplum.statements import (
    NEW_STATE,
    GreenplumSegment,
    arriving,
    moves_nothing,
    probes,
    runs_on_one_segment,
)
from easeml_db.postgres.nodes.node_store import Arrival, Connection, Facts, KnownState, Part
from easeml_db.postgres.nodes.row_copies import copy_rows

CHUNKS: LiteralString = """
SELECT checkpoint_id, chunk_number, bytes FROM easeml_segment.checkpoint_chunks
WHERE {here} AND checkpoint_id = {id} ORDER BY chunk_number
"""
CHUNKS_IN: LiteralString = """
easeml_segment.checkpoint_chunks
    (segment_key, checkpoint_id, trial_id, lease_number, n_bytes, sha256, chunk_number, bytes)
"""
BLOCKS: LiteralString = """
SELECT dataset_id, split, partition_number, block_number, n_rows, inputs, targets FROM easeml_segment.version_blocks
WHERE {here} AND dataset_id = {dataset} AND split = {split} AND partition_number = {part}
    AND block_number BETWEEN {first} AND {last}
"""
LAST_BLOCK: LiteralString = """
SELECT coalesce(max(block_number), -1) AS last FROM easeml_segment.version_blocks
WHERE {here} AND dataset_id = {dataset} AND split = {split} AND partition_number = {part}
"""
BLOCKS_IN: LiteralString = """
easeml_segment.version_blocks
    (segment_key, dataset_id, split, partition_number, block_number, n_rows, inputs, targets)
"""
HAS_PART: LiteralString = """
SELECT 1 FROM easeml_segment.partitions WHERE {here} AND dataset_id = {dataset} AND split = {split}
    AND partition_number = {part}
"""
HAS_DATASET: LiteralString = "SELECT 1 FROM easeml_segment.datasets WHERE {here} AND dataset_id = {dataset}"
NEW_DATASET: LiteralString = """
INSERT INTO easeml_segment.datasets (segment_key, dataset_id, encoder) VALUES ({key}, {dataset}, {encoder})
"""
NEW_PARTITION: LiteralString = """
INSERT INTO easeml_segment.partitions (segment_key, dataset_id, split, partition_number)
VALUES ({key}, {dataset}, {split}, {part})
"""
HAS_STATE: LiteralString = """
SELECT coalesce(sum(octet_length(bytes)), 0)::bigint AS n_bytes FROM easeml_segment.checkpoint_chunks
WHERE {here} AND checkpoint_id = {id} AND trial_id = {trial} AND sha256 = {sha256} AND n_bytes = {n_bytes}
"""
HAS_NUMBER: LiteralString = (
    "SELECT 1 FROM easeml_segment.checkpoint_chunks WHERE {here} AND checkpoint_id = {id} LIMIT 1"
)
STATES: LiteralString = """
SELECT DISTINCT checkpoint_id AS number FROM easeml_segment.checkpoint_chunks WHERE {here} AND lease_number <= {lease}
"""
DROP_STATES: LiteralString = """
DELETE FROM easeml_segment.checkpoint_chunks WHERE {here} AND checkpoint_id = ANY({numbers}::bigint[])
"""
DATASETS: LiteralString = "SELECT dataset_id AS number FROM easeml_segment.datasets WHERE {here}"
DROP_DATASETS: tuple[LiteralString, ...] = (
    "DELETE FROM easeml_segment.partitions WHERE {here} AND dataset_id = ANY({numbers}::bigint[])",
    "DELETE FROM easeml_segment.version_blocks WHERE {here} AND dataset_id = ANY({numbers}::bigint[])",
    "DELETE FROM easeml_segment.datasets WHERE {here} AND dataset_id = ANY({numbers}::bigint[])",
)
VACUUM = "VACUUM easeml_segment.checkpoint_chunks"


class GreenplumStore:
    """The store of one segment, reached through the coordinator of its cluster."""

    def __init__(self, connection: Connection, segment: GreenplumSegment) -> None:
        self._connection, self.segment = connection, segment

    @property
    def connection(self) -> Connection:
        """The session on the coordinator of the cluster."""
        return self._connection

    def chunks_of(self, checkpoint_id: int) -> sql.Composable:
        """Return the query of a state's bytes in their order."""
        return self._statement(CHUNKS, id=checkpoint_id)

    def blocks_of(self, part: Part, first: int, last: int) -> sql.Composable:
        """Return the query of some blocks of a part."""
        return self._statement(BLOCKS, **_values(part), first=first, last=last)

    async def last_block(self, part: Part) -> int:
        """Return the number of the last block of a part, -1 where it has none."""
        (row,) = await self._rows(LAST_BLOCK, **_values(part))
        return int(row["last"])

    async def facts(self) -> Facts:
        """Return the facts of cluster and segment; the segment then has imported what units need."""
        return await look(self._connection, self.segment.content)

    async def hold(self, token: str) -> None:
        """Make the segment serve a token, and no other."""
        await hold(self._connection, self.segment.content, token)

    async def make_ready(self) -> None:
        """Make the table of a session, and find out by which predicate its queries run on one segment."""
        await self._connection.execute(NEW_STATE)
        for candidate in (self.segment, replace(self.segment, is_by_key=not self.segment.is_by_key)):
            selecting, inserting = [await explained(self._connection, probe) for probe in probes(candidate)]
            if runs_on_one_segment(selecting) and moves_nothing(inserting):
                self.segment = candidate
                return
        raise NotReady(
            f"its planner sends no query to segment {self.segment.content} alone",
            hint="Units would run on all segments. Are optimizer = off, and the tables of easeml_segment as they were?",
        )

    async def register(self, registered: list[dict[str, Any]]) -> None:
        """Do nothing: what was registered is in the context of each unit."""

    async def receive(self, source: Connection, arrival: Arrival) -> int:
        """Copy a transfer from a source; return the bytes."""
        return await copy_rows(source, self._connection, arrival.query, arrival.into)

    async def has_part(self, part: Part) -> bool:
        """Return whether the rows of a part are here."""
        return bool(await self._rows(HAS_PART, **_values(part)))

    async def begin_dataset(self, dataset_id: int, encoder: str) -> None:
        """Record the encoder of a dataset, unless it is recorded already."""
        if not await self._rows(HAS_DATASET, dataset=dataset_id):
            await self._execute(NEW_DATASET, key=self.segment.key, dataset=dataset_id, encoder=encoder.encode())

    async def begin_part(self, part: Part, encoder: str) -> bool:
        """Record, in a transaction, that the rows of a part are here; return False if they are already."""
        if await self.has_part(part):
            return False
        await self.begin_dataset(part.dataset_id, encoder)
        await self._execute(NEW_PARTITION, key=self.segment.key, **_values(part))
        return True

    def arriving_blocks(self, blocks: sql.Composable) -> Arrival:
        """Return how blocks come here: the key goes before each."""
        query = sql.SQL("SELECT {} q.* FROM ({}) q").format(self.segment.lead, blocks)
        return Arrival(query, sql.SQL(BLOCKS_IN))

    async def datasets(self) -> set[int]:
        """Return the datasets of which something is here."""
        return {row["number"] for row in await self._rows(DATASETS)}

    async def drop_datasets(self, dataset_ids: Collection[int]) -> None:
        """Remove the rows of datasets."""
        async with self._connection.transaction():
            for statement in DROP_DATASETS:
                await self._execute(statement, numbers=list(dataset_ids))

    async def has_state(self, state: KnownState) -> bool:
        """Return whether all chunks of a state are here."""
        values = {"trial": state.trial_id, "sha256": state.sha256, "n_bytes": state.n_bytes}
        (row,) = await self._rows(HAS_STATE, id=state.checkpoint_id, **values)
        return bool(row["n_bytes"] == state.n_bytes)

    async def begin_state(self, state: KnownState, lease_number: int) -> bool:
        """Begin a transaction; return False where something is here under the number of the state."""
        await self._connection.execute("BEGIN")
        return not await self._rows(HAS_NUMBER, id=state.checkpoint_id)

    def arriving_state(self, state: KnownState, lease_number: int, chunks: sql.Composable) -> Arrival:
        """Return how the bytes of a state come here: each row says which state it is of."""
        lead = arriving(self.segment, state, lease_number)
        return Arrival(
            sql.SQL("SELECT {} q.chunk_number, q.bytes FROM ({}) q").format(lead, chunks), sql.SQL(CHUNKS_IN)
        )

    async def states(self, lease_number: int) -> set[int]:
        """Return the states that were written under this lease or an earlier one."""
        return {row["number"] for row in await self._rows(STATES, lease=lease_number)}

    async def drop_state(self, checkpoint_id: int) -> None:
        """Remove a state. A DELETE locks the table, so there is none where there is nothing to remove."""
        if await self._rows(HAS_NUMBER, id=checkpoint_id):
            await self._execute(DROP_STATES, numbers=[checkpoint_id])

    async def collect(self, checkpoint_ids: Collection[int], lease_number: int) -> None:
        """Remove states, and have their room used again."""
        await self._execute(DROP_STATES, numbers=list(checkpoint_ids))
        await self._connection.execute(VACUUM)

    def _statement(self, statement: LiteralString, **values: object) -> sql.Composed:
        """Return a statement with literals: by them the cluster sees which segment it is about."""
        literals = {name: sql.Literal(value) for name, value in values.items()}
        return sql.SQL(statement).format(here=self.segment.here, **literals)

    async def _execute(self, statement: LiteralString, **values: object) -> psycopg.AsyncCursor[dict[str, Any]]:
        return await self._connection.execute(self._statement(statement, **values))

    async def _rows(self, statement: LiteralString, **values: object) -> list[dict[str, Any]]:
        return await (await self._execute(statement, **values)).fetchall()


def _values(part: Part) -> dict[str, object]:
    return {"dataset": part.dataset_id, "split": part.split, "part": part.partition_number}


async def explained(connection: Connection, statement: sql.Composable) -> list[str]:
    """Return the plan of a statement."""
    cursor = await connection.execute(sql.SQL("EXPLAIN {}").format(statement))
    return [next(iter(row.values())) for row in await cursor.fetchall()]
