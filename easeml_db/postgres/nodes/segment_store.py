"""The tables of the extension easeml_segment, and those of easeml that rows and states come from."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, LiteralString

from psycopg import sql

from easeml_db.postgres.nodes.node_store import Arrival, Connection, Facts, KnownState, Part
from easeml_db.postgres.nodes.row_copies import copy_rows, soon
from easeml_db.postgres.versions import FIRST_WITH_MAINTAIN

FACTS = "SELECT easeml_segment.node_facts() AS facts"
HOLD = "SELECT easeml_segment.hold(%s)"
WARM = "SELECT easeml_segment.warm_node()"
REGISTER = """
INSERT INTO easeml_segment.registered_architectures
SELECT r.* FROM jsonb_populate_recordset(NULL::easeml_segment.registered_architectures, %s::jsonb) r
ON CONFLICT DO NOTHING RETURNING true AS is_new
"""
BLOCKS: LiteralString = """
SELECT dataset_id, split, partition_number, block_number, n_rows, inputs, targets FROM {schema}.version_blocks
WHERE dataset_id = {dataset} AND split = {split} AND partition_number = {part}
    AND block_number BETWEEN {first} AND {last}
"""
LAST_BLOCK: LiteralString = """
SELECT coalesce(max(block_number), -1) AS last FROM {schema}.version_blocks
WHERE dataset_id = {dataset} AND split = {split} AND partition_number = {part}
"""
BLOCKS_IN: LiteralString = """
easeml_segment.version_blocks (dataset_id, split, partition_number, block_number, n_rows, inputs, targets)
"""
CHUNKS: LiteralString = """
SELECT checkpoint_id, chunk_number, bytes FROM easeml_segment.checkpoint_chunks WHERE checkpoint_id = {id}
ORDER BY chunk_number
"""
CHUNKS_IN: LiteralString = "easeml_segment.checkpoint_chunks (checkpoint_id, chunk_number, bytes)"
BLOCK_TYPES = ("int8", "text", "int4", "int4", "int4", "bytea", "bytea")
CHUNK_TYPES = ("int8", "int4", "bytea")
CONTROL_CHUNKS: LiteralString = """
SELECT checkpoint_id, 0 AS chunk_number, state AS bytes FROM easeml.checkpoints
WHERE checkpoint_id = {id} AND state IS NOT NULL
UNION ALL SELECT checkpoint_id, chunk_number, bytes FROM easeml.checkpoint_chunks WHERE checkpoint_id = {id}
ORDER BY chunk_number
"""
HAS_PART = "SELECT FROM easeml_segment.partitions WHERE dataset_id = %s AND split = %s AND partition_number = %s"
NEW_DATASET = """
INSERT INTO easeml_segment.datasets (dataset_id, encoder) VALUES (%s, %s::jsonb)
ON CONFLICT DO NOTHING RETURNING dataset_id
"""
NEW_PARTITION = """
INSERT INTO easeml_segment.partitions (dataset_id, split, partition_number) VALUES (%s, %s, %s)
ON CONFLICT DO NOTHING RETURNING dataset_id
"""
HAS_STATE = """
SELECT FROM easeml_segment.checkpoints c WHERE c.checkpoint_id = %s AND c.trial_id = %s AND c.sha256 = %s
    AND EXISTS (SELECT FROM easeml_segment.checkpoint_chunks k WHERE k.checkpoint_id = c.checkpoint_id)
"""
NEW_STATE: LiteralString = """
INSERT INTO easeml_segment.checkpoints (checkpoint_id, trial_id, lease_number, n_bytes, sha256)
VALUES ({id}, {trial}, {lease}, {n_bytes}, {sha256}) ON CONFLICT DO NOTHING RETURNING checkpoint_id
"""
STATES = "SELECT checkpoint_id AS number FROM easeml_segment.checkpoints WHERE lease_number <= %s"
DROP_STATE = "DELETE FROM easeml_segment.checkpoints WHERE checkpoint_id = %s RETURNING checkpoint_id"
COLLECT = """
DELETE FROM easeml_segment.checkpoints WHERE checkpoint_id = ANY(%s::bigint[]) AND lease_number <= %s
RETURNING checkpoint_id
"""
VACUUM = "VACUUM (TRUNCATE false) easeml_segment.checkpoints, easeml_segment.checkpoint_chunks"
DATASETS = "SELECT dataset_id AS number FROM easeml_segment.datasets"
DROP_DATASETS = """
DELETE FROM easeml_segment.datasets WHERE dataset_id = ANY(%s::bigint[]) RETURNING dataset_id
"""


class ControlSource:
    """The control server as a source of states and packed rows."""

    schema = "easeml"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def connection(self) -> Connection:
        """The connection by which it is reached."""
        return self._connection

    def chunks_of(self, checkpoint_id: int) -> sql.Composable:
        """Return the query of a state's bytes in their order."""
        return sql.SQL(CONTROL_CHUNKS).format(id=sql.Literal(checkpoint_id))

    def blocks_of(self, part: Part, first: int, last: int) -> sql.Composable:
        """Return the query of some blocks of a part."""
        return sql.SQL(BLOCKS).format(**self._of(part), first=sql.Literal(first), last=sql.Literal(last))

    async def last_block(self, part: Part) -> int:
        """Return the number of the last block of a part, -1 if it has none."""
        row = await (await soon(self._connection.execute(self._last_block(part)))).fetchone()
        return int((row or {"last": -1})["last"])

    def _last_block(self, part: Part) -> sql.Composed:
        return sql.SQL(LAST_BLOCK).format(**self._of(part))

    def _of(self, part: Part) -> dict[str, sql.Composable]:
        return {
            "schema": sql.Identifier(self.schema),
            "dataset": sql.Literal(part.dataset_id),
            "split": sql.Literal(part.split),
            "part": sql.Literal(part.partition_number),
        }


class SegmentStore(ControlSource):
    """The rows and states of a node with the extension easeml_segment."""

    schema = "easeml_segment"

    def chunks_of(self, checkpoint_id: int) -> sql.Composable:
        """Return the query of a state's bytes in their order."""
        return sql.SQL(CHUNKS).format(id=sql.Literal(checkpoint_id))

    async def facts(self) -> Facts:
        """Return the facts that the node reports."""
        (row,) = await self._rows(FACTS)
        facts: Facts = row["facts"]
        return facts

    async def hold(self, token: str) -> None:
        """Make the node serve a token, and no other."""
        await self._rows(HOLD, token)

    async def make_ready(self) -> None:
        """Make the session import what units need."""
        await self._rows(WARM)

    async def register(self, registered: list[dict[str, Any]]) -> None:
        """Tell the node of architectures of installed packages."""
        if registered:
            await self._rows(REGISTER, json.dumps(registered))

    async def receive(self, source: Connection, arrival: Arrival) -> int:
        """Copy a transfer from a source; return the number of bytes."""
        return await copy_rows(source, self._connection, arrival.query, arrival.into)

    async def has_part(self, part: Part) -> bool:
        """Return whether the rows of a part are here."""
        return bool(await soon(self._rows(HAS_PART, part.dataset_id, part.split, part.partition_number)))

    async def begin_dataset(self, dataset_id: int, encoder: str) -> None:
        """Record the encoder of a dataset, unless it is recorded already."""
        await self._rows(NEW_DATASET, dataset_id, encoder)

    async def begin_part(self, part: Part, encoder: str) -> bool:
        """Record that the rows of a part are here; return False if they are already."""
        await self.begin_dataset(part.dataset_id, encoder)
        return bool(await self._rows(NEW_PARTITION, part.dataset_id, part.split, part.partition_number))

    def arriving_blocks(self, blocks: sql.Composable) -> Arrival:
        """Return how blocks come here."""
        return Arrival(blocks, sql.SQL(BLOCKS_IN), BLOCK_TYPES)

    async def datasets(self) -> set[int]:
        """Return the datasets of which something is here."""
        return await self._numbers(DATASETS)

    async def drop_datasets(self, dataset_ids: Collection[int]) -> None:
        """Remove the rows of datasets."""
        await self._rows(DROP_DATASETS, list(dataset_ids))

    async def has_state(self, state: KnownState) -> bool:
        """Return whether the bytes of a state are here."""
        return bool(await soon(self._rows(HAS_STATE, state.checkpoint_id, state.trial_id, state.sha256)))

    async def begin_state(self, state: KnownState, lease_number: int) -> bool:
        """Begin a transaction, and the row of a state; return False if there is one already."""
        # One message instead of two: with small states, the wait for each is a good part of a hop.
        statement = sql.SQL("BEGIN; {}").format(self._new_state(state, lease_number))
        begun = await soon(self._connection.execute(statement))
        begun.nextset()
        return await begun.fetchone() is not None

    def arriving_state(self, state: KnownState, lease_number: int, chunks: sql.Composable) -> Arrival:
        """Return how the bytes of a state come here; its row says the rest."""
        return Arrival(chunks, sql.SQL(CHUNKS_IN), CHUNK_TYPES)

    async def states(self, lease_number: int) -> set[int]:
        """Return the states that were written under this lease or an earlier one."""
        return await self._numbers(STATES, lease_number)

    async def drop_state(self, checkpoint_id: int) -> None:
        """Remove a state, if it is here."""
        await self._rows(DROP_STATE, checkpoint_id)

    async def collect(self, checkpoint_ids: Collection[int], lease_number: int) -> None:
        """Remove states that were listed under a lease, and have their room used again."""
        await self._rows(COLLECT, list(checkpoint_ids), lease_number)
        if self._connection.info.server_version >= FIRST_WITH_MAINTAIN:
            await self._connection.execute(VACUUM)

    @staticmethod
    def _new_state(state: KnownState, lease_number: int) -> sql.Composed:
        return sql.SQL(NEW_STATE).format(
            id=state.checkpoint_id, trial=state.trial_id, lease=lease_number, n_bytes=state.n_bytes, sha256=state.sha256
        )

    async def _numbers(self, statement: LiteralString, *values: object) -> set[int]:
        return {row["number"] for row in await self._rows(statement, *values)}

    async def _rows(self, statement: LiteralString, *values: object) -> list[dict[str, Any]]:
        """Return the rows of a statement that returns some, a change as well."""
        return await (await self._connection.execute(statement, list(values))).fetchall()
