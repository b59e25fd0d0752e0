"""States and packed rows on their way from one server to another: binary COPY, of which this process keeps one piece.

What arrives is there as a whole or not at all, and a second one of the same name finds the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import sql

from easeml_db.errors import CorruptCheckpoint, NotFound, ServerUnavailable

T = TypeVar("T")
Connection = psycopg.AsyncConnection[dict[str, Any]]

SILENCE_SECONDS = 20.0
CONTROL, NODE = "easeml", "easeml_segment"
ROW = "SELECT trial_id, n_bytes, sha256 FROM {schema}.checkpoints WHERE checkpoint_id = %s"
STATE_OUT: dict[str, LiteralString] = {
    NODE: "SELECT checkpoint_id, chunk_number, bytes FROM easeml_segment.checkpoint_chunks WHERE checkpoint_id = {id}"
    " ORDER BY chunk_number",
    CONTROL: """
SELECT checkpoint_id, 0 AS chunk_number, state AS bytes FROM easeml.checkpoints
WHERE checkpoint_id = {id} AND state IS NOT NULL
UNION ALL SELECT checkpoint_id, chunk_number, bytes FROM easeml.checkpoint_chunks WHERE checkpoint_id = {id}
ORDER BY chunk_number
""",
}
NEW_STATE = """
INSERT INTO easeml_segment.checkpoints (checkpoint_id, trial_id, lease_number, n_bytes, sha256)
VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING checkpoint_id
"""


@dataclass(frozen=True)
class Place:
    """A server that has states, reached by a connection; `schema` is that of its extension."""

    connection: Connection
    schema: str


@dataclass(frozen=True)
class Part:
    """The rows of one split in one partition of a dataset."""

    dataset_id: int
    split: str
    partition_number: int


async def copy_rows(source: Connection, target: Connection, query: sql.Composable, into: sql.Composable) -> int:
    """Copy what a query returns into columns of a table of another server; return the bytes on the wire."""
    n_bytes = 0
    read = sql.SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(query)
    write = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(into)
    async with source.cursor().copy(read) as rows, target.cursor().copy(write) as written:
        while piece := await soon(rows.read()):
            n_bytes += len(piece)
            await soon(written.write(piece))
    return n_bytes


async def soon(work: Awaitable[T]) -> T:
    """Wait for a server, which may be stopped without its connections being cut. Raises ServerUnavailable."""
    try:
        return await asyncio.wait_for(work, SILENCE_SECONDS)
    except TimeoutError as error:
        raise ServerUnavailable(f"a server has not answered for {SILENCE_SECONDS:.0f} seconds") from error


async def has_state(place: Place, checkpoint_id: int) -> bool:
    """Say whether a server has the bytes of a state."""
    statement = f"SELECT FROM {place.schema}.checkpoint_chunks WHERE checkpoint_id = %s LIMIT 1"
    cursor = await place.connection.execute(statement.encode(), [checkpoint_id])
    return bool(await cursor.fetchall())


async def bring_state(source: Place, node: Connection, checkpoint_id: int, lease_number: int) -> int:
    """Copy a state to a node that may have it already; return the bytes. Raises NotFound where the source lacks it."""
    found = await soon(source.connection.execute(ROW.format(schema=source.schema).encode(), [checkpoint_id]))
    row = await found.fetchone()
    if row is None:
        raise NotFound(f"checkpoint {checkpoint_id} is not there")
    async with node.transaction():
        values = [checkpoint_id, row["trial_id"], lease_number, row["n_bytes"], row["sha256"]]
        if await (await node.execute(NEW_STATE, values)).fetchone() is None:
            return 0
        query = sql.SQL(STATE_OUT[source.schema]).format(id=sql.Literal(checkpoint_id))
        into = sql.SQL("easeml_segment.checkpoint_chunks (checkpoint_id, chunk_number, bytes)")
        n_bytes = await copy_rows(source.connection, node, query, into)
        if n_bytes < row["n_bytes"]:
            raise CorruptCheckpoint(f"checkpoint {checkpoint_id} has {n_bytes} of its {row['n_bytes']} bytes")
    return n_bytes


async def fetch_state(node: Connection, control: Connection, checkpoint_id: int, tenant: str) -> int:
    """Copy a state from a node to the control server, in the transaction that its connection is in."""
    query = sql.SQL(
        "SELECT checkpoint_id, {tenant}::name, chunk_number, bytes FROM easeml_segment.checkpoint_chunks"
        " WHERE checkpoint_id = {id} ORDER BY chunk_number"
    ).format(tenant=sql.Literal(tenant), id=sql.Literal(checkpoint_id))
    into = sql.SQL("easeml.checkpoint_chunks (checkpoint_id, tenant, chunk_number, bytes)")
    return await copy_rows(node, control, query, into)
