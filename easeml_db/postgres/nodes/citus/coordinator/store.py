"""The rows and states of a worker of Citus, in tables of its own, through the coordinator of its cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from easeml_db.errors import SlotLost
from easeml_db.postgres.nodes.citus.coordinator.statements import (
    BLOCK_COLUMNS,
    CHUNK_COLUMNS,
    CitusWorker,
    Row,
    place_of,
)
from easeml_db.postgres.nodes.node_store import Arrival, Connection, KnownState, Part
from easeml_db.postgres.nodes.row_copies import OUT, copying, soon
from easeml_db.postgres.nodes.segment_store import COLLECT, SegmentStore

# Of the worker's session: Citus hands on no settings of that on the coordinator.
SETTINGS: LiteralString = """
SELECT set_config('client_connection_check_interval', '1s', false), set_config('jit', 'off', false),
    set_config('lock_timeout', '500ms', false), set_config('statement_timeout', '0', false)
"""

# Of what arrives. A statement takes a millisecond, whatever it writes.
ROWS_AT_ONCE, BYTES_AT_ONCE = 5_000, 1_000_000


class CoordinatorStore(SegmentStore):
    """A node with the extension easeml_segment that only the coordinator of its cluster can reach."""

    def __init__(self, connection: Connection, worker: CitusWorker) -> None:
        super().__init__(connection)
        self.worker = worker

    def chunks_of(self, checkpoint_id: int) -> sql.Composable:
        """Return the query of a state's bytes in their order."""
        return self._on_worker(super().chunks_of(checkpoint_id), CHUNK_COLUMNS)

    def blocks_of(self, part: Part, first: int, last: int) -> sql.Composable:
        """Return the query of some blocks of a part."""
        return self._on_worker(super().blocks_of(part, first, last), BLOCK_COLUMNS)

    async def last_block(self, part: Part) -> int:
        """Return the number of the last block of a part, -1 where it has none."""
        (row,) = await soon(self._rows_of(self._last_block(part)))
        return int(row["last"])

    async def make_ready(self) -> None:
        """Let the worker's session import what units need."""
        await self._rows(SETTINGS)
        await super().make_ready()

    async def receive(self, source: Connection, arrival: Arrival) -> int:
        """Write the rows of a transfer, some at a time; return the bytes. A COPY would end on the coordinator.

        The transfer must name its types."""
        n_bytes, n_written = 0, 0
        rows: list[Row] = []
        async with copying(source.cursor().copy(sql.SQL(OUT).format(arrival.query))) as arriving:
            arriving.set_types(arrival.types)
            while row := await soon(arriving.read_row()):
                typed = zip(row, arrival.types, strict=True)
                rows.append([place_of(value) if kind == "tid" else value for value, kind in typed])
                n_bytes += sum(len(value) for value in row if isinstance(value, bytes))
                if len(rows) == ROWS_AT_ONCE or n_bytes - n_written >= BYTES_AT_ONCE:
                    await self._write(arrival.into, rows)
                    rows, n_written = [], n_bytes
        if rows:
            await self._write(arrival.into, rows)
        return n_bytes

    async def _write(self, into: sql.Composable, rows: list[Row]) -> None:
        query, values = self.worker.written(into, rows)
        row = await (await soon(self._connection.execute(query, values, prepare=False))).fetchone()
        if row is None or row["found"] != len(rows):  # the key has no row, so Citus asked no worker
            raise SlotLost(f"worker {self.worker.group} of its cluster did not write what was sent to it")

    async def begin_state(self, state: KnownState, lease_number: int) -> bool:
        """Begin a transaction, and the row of a state; return False where there is one already."""
        await soon(self._connection.execute("BEGIN"))
        return bool(await soon(self._rows_of(self._new_state(state, lease_number))))

    async def collect(self, checkpoint_ids: Collection[int], lease_number: int) -> None:
        """Remove states. No VACUUM passes the coordinator, so the worker's autovacuum frees their room."""
        await self._rows(COLLECT, list(checkpoint_ids), lease_number)

    def _on_worker(self, query: sql.Composable, columns: LiteralString) -> sql.Composed:
        return self.worker.asked(query.as_string(self._connection), columns)

    async def _rows(self, statement: LiteralString, *values: object) -> list[dict[str, Any]]:
        text = psycopg.AsyncClientCursor(self._connection).mogrify(statement, list(values))
        return await self.worker_rows(text)

    async def _rows_of(self, statement: sql.Composable) -> list[dict[str, Any]]:
        return await self.worker_rows(statement.as_string(self._connection))

    async def worker_rows(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement that the worker executes."""
        cursor = await self._connection.execute(self.worker.found(statement))
        return [row["found"] for row in await cursor.fetchall()]
