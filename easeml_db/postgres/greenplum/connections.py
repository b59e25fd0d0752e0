"""Sessions on the coordinator of a Greenplum cluster that are about one of its segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from easeml_db.errors import NotFound, NotReady
from easeml_db.postgres.connection import connect_as
from easeml_db.postgres.greenplum.statements import GreenplumSegment, arriving
from easeml_db.postgres.transfers import Connection, KnownState, Part

# Of the settings that sessions on nodes have, those that PostgreSQL 9.4 knows; the rest is Greenplum's own.
KNOWN_SETTINGS = ("statement_timeout", "lock_timeout")
# Processes of segments keep Python, its packages and decoded rows for as long as the session lasts. ORCA, the other
# planner, was never tried.
OWN_SETTINGS = {"optimizer": "off", "gp_vmem_idle_resource_timeout": "0"}
KEY = "SELECT min(segment_key) AS key FROM easeml_segment.keys WHERE gp_segment_id = %s"
HAS_PART: LiteralString = """
SELECT 1 FROM easeml_segment.partitions WHERE {here} AND dataset_id = {dataset} AND split = {split}
    AND partition_number = {part}
"""
NEW_DATASET: LiteralString = """
INSERT INTO easeml_segment.datasets (segment_key, dataset_id, encoder) VALUES ({key}, {dataset}, {encoder})
"""
NEW_PARTITION: LiteralString = """
INSERT INTO easeml_segment.partitions (segment_key, dataset_id, split, partition_number)
VALUES ({key}, {dataset}, {split}, {part})
"""
HAS_DATASET: LiteralString = "SELECT 1 FROM easeml_segment.datasets WHERE {here} AND dataset_id = {dataset}"
HAS_STATE: LiteralString = """
SELECT coalesce(sum(octet_length(bytes)), 0)::bigint AS n_bytes FROM easeml_segment.checkpoint_chunks
WHERE {here} AND checkpoint_id = {id} AND trial_id = {trial} AND sha256 = {sha256} AND n_bytes = {n_bytes}
"""
HAS_NUMBER: LiteralString = (
    "SELECT 1 FROM easeml_segment.checkpoint_chunks WHERE {here} AND checkpoint_id = {id} LIMIT 1"
)
LISTED: LiteralString = """
SELECT DISTINCT checkpoint_id FROM easeml_segment.checkpoint_chunks WHERE {here} AND lease_number <= {lease}
"""
LISTED_DATASETS: LiteralString = "SELECT dataset_id FROM easeml_segment.datasets WHERE {here}"
DROP_STATES: LiteralString = """
DELETE FROM easeml_segment.checkpoint_chunks WHERE {here} AND checkpoint_id = ANY({numbers}::bigint[])
"""
DROP_DATASETS: LiteralString = "DELETE FROM {table} WHERE {here} AND dataset_id = ANY({numbers}::bigint[])"
DATASET_TABLES = ("partitions", "version_blocks", "datasets")
VACUUM = "VACUUM easeml_segment.checkpoint_chunks"


class GreenplumStore:
    """The rows and states of a segment, in tables of the cluster that are distributed by the keys of segments."""

    def __init__(self, connection: Connection, segment: GreenplumSegment) -> None:
        self._connection, self.segment = connection, segment

    @property
    def and_here(self) -> sql.Composable:
        """A condition that holds for rows of this segment alone, with AND before it."""
        return self.segment.and_here

    @property
    def lead(self) -> sql.Composable:
        """The key, by which rows come here."""
        return self.segment.lead

    @property
    def block_columns(self) -> sql.Composable:
        """The table and the columns that packed rows come to."""
        return sql.SQL(
            "easeml_segment.version_blocks"
            " (segment_key, dataset_id, split, partition_number, block_number, n_rows, inputs, targets)"
        )

    @property
    def chunk_columns(self) -> sql.Composable:
        """The table and the columns that chunks come to."""
        return sql.SQL(
            "easeml_segment.checkpoint_chunks"
            " (segment_key, checkpoint_id, trial_id, lease_number, n_bytes, sha256, chunk_number, bytes)"
        )

    def chunk_lead(self, state: KnownState, lease_number: int) -> sql.Composable:
        """What stands before number and bytes in a query of chunks that come here."""
        return arriving(self.segment, state, lease_number)

    async def has_part(self, part: Part) -> bool:
        """Say whether the rows of a part are here."""
        return bool(await self._rows(HAS_PART, **self._of(part)))

    async def begin_part(self, part: Part, encoder: str) -> bool:
        """Note, in a transaction, that the rows of a part are here; return False where they are already."""
        if await self.has_part(part):
            return False
        if not await self._rows(HAS_DATASET, dataset=part.dataset_id):
            key = self.segment.key
            await self._execute(NEW_DATASET, key=key, dataset=part.dataset_id, encoder=encoder.encode())
        await self._execute(NEW_PARTITION, key=self.segment.key, **self._of(part))
        return True

    async def has_state(self, state: KnownState) -> bool:
        """Say whether the chunks of a state are here, all of them."""
        values = {"trial": state.trial_id, "sha256": state.sha256, "n_bytes": state.n_bytes}
        (row,) = await self._rows(HAS_STATE, id=state.checkpoint_id, **values)
        return bool(row["n_bytes"] == state.n_bytes)

    async def has_number(self, checkpoint_id: int) -> bool:
        """Say whether anything is here under the number of a state."""
        return bool(await self._rows(HAS_NUMBER, id=checkpoint_id))

    async def drop_states(self, checkpoint_ids: Sequence[int]) -> None:
        """Remove states. A DELETE locks the table, so there is none where there is nothing to remove."""
        there = [number for number in checkpoint_ids if len(checkpoint_ids) > 1 or await self.has_number(number)]
        if there:
            await self._execute(DROP_STATES, numbers=there)

    async def listed_states(self, lease_number: int) -> set[int]:
        """Return the states that were written under this lease or an earlier one."""
        return {row["checkpoint_id"] for row in await self._rows(LISTED, lease=lease_number)}

    async def listed_datasets(self) -> set[int]:
        """Return the datasets of which rows are here."""
        return {row["dataset_id"] for row in await self._rows(LISTED_DATASETS)}

    async def drop_datasets(self, dataset_ids: Sequence[int]) -> None:
        """Remove the rows of datasets."""
        async with self._connection.transaction():
            for name in DATASET_TABLES:
                table = sql.Identifier("easeml_segment", name)
                statement = sql.SQL(DROP_DATASETS).format(
                    table=table, here=self.segment.here, numbers=sql.Literal(list(dataset_ids))
                )
                await self._connection.execute(statement)

    async def vacuum(self) -> None:
        """Have the room of removed states used again."""
        await self._connection.execute(VACUUM)

    @staticmethod
    def _of(part: Part) -> dict[str, object]:
        return {"dataset": part.dataset_id, "split": part.split, "part": part.partition_number}

    async def _execute(self, statement: LiteralString, **values: object) -> psycopg.AsyncCursor[dict[str, Any]]:
        """Execute a statement with literals: by them the cluster sees which segment it is about."""
        literals = {name: sql.Literal(value) for name, value in values.items()}
        return await self._connection.execute(sql.SQL(statement).format(here=self.segment.here, **literals))

    async def _rows(self, statement: LiteralString, **values: object) -> list[dict[str, Any]]:
        return await (await self._execute(statement, **values)).fetchall()


class GreenplumConnection(psycopg.AsyncConnection[dict[str, Any]]):
    """A session on the coordinator of a cluster; `store` is the segment that it is about."""

    store: GreenplumStore


async def connect_segment(
    dsn: str, content: int, application_name: str, settings: Mapping[str, str]
) -> GreenplumConnection:
    """Open an autocommit session about a segment. Raises ServerUnavailable, NotFound, NotReady, psycopg.Error."""
    known = {name: value for name, value in settings.items() if name in KNOWN_SETTINGS}
    connection = await connect_as(GreenplumConnection, dsn, application_name, known)
    try:
        for name, value in OWN_SETTINGS.items():
            await connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        row = await (await connection.execute(KEY, [content])).fetchone()
    except psycopg.Error as error:
        await connection.close()
        if error.sqlstate in ("42704", "42703"):  # no such setting, no such column
            raise NotReady("its server is no Greenplum cluster", hint="Name the cluster's coordinator.") from error
        raise
    if row is None or row["key"] is None:
        await connection.close()
        raise NotFound(f"its cluster has no segment {content}", hint="gp_segment_configuration has them as content.")
    connection.store = GreenplumStore(connection, GreenplumSegment(content, row["key"]))
    return connection
