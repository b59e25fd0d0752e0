"""States and packed rows on their way from one server to another: binary COPY, of which this process keeps one piece.

What arrives is there as a whole or not at all, and a second one of the same name finds the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import sql

from easeml_db.errors import CorruptCheckpoint, NotFound, ServerUnavailable
from easeml_db.postgres.node_store import OtherStore, other_store

T = TypeVar("T")
Connection = psycopg.AsyncConnection[dict[str, Any]]

SILENCE_SECONDS = 20.0
CONTROL, NODE = "easeml", "easeml_segment"
NOTHING: sql.Composable = sql.SQL("")
STATE_OUT: dict[str, LiteralString] = {
    NODE: "SELECT checkpoint_id, chunk_number, bytes FROM easeml_segment.checkpoint_chunks WHERE checkpoint_id = {id}"
    " {and_here} ORDER BY chunk_number",
    CONTROL: """
SELECT checkpoint_id, 0 AS chunk_number, state AS bytes FROM easeml.checkpoints
WHERE checkpoint_id = {id} AND state IS NOT NULL {and_here}
UNION ALL SELECT checkpoint_id, chunk_number, bytes FROM easeml.checkpoint_chunks WHERE checkpoint_id = {id}
ORDER BY chunk_number
""",
}
CHUNKS_IN = "COPY easeml.checkpoint_chunks (checkpoint_id, tenant, chunk_number, bytes) FROM STDIN (FORMAT binary)"
HAS_STATE = """
SELECT FROM easeml_segment.checkpoints c WHERE c.checkpoint_id = %s AND c.trial_id = %s AND c.sha256 = %s
    AND EXISTS (SELECT FROM easeml_segment.checkpoint_chunks k WHERE k.checkpoint_id = c.checkpoint_id)
"""
DROP_STATE = "DELETE FROM easeml_segment.checkpoints WHERE checkpoint_id = %s"
CHUNKS_OUT: LiteralString = """
COPY (SELECT bytes FROM easeml_segment.checkpoint_chunks WHERE checkpoint_id = {id} {and_here} ORDER BY chunk_number)
TO STDOUT (FORMAT binary)
"""
EMPTY_COPY_BYTES = 21  # of the binary format: its beginning and its end
# In one message: each that a hop waits for is a good part of what a small state takes.
NEW_STATE: LiteralString = """
BEGIN;
INSERT INTO easeml_segment.checkpoints (checkpoint_id, trial_id, lease_number, n_bytes, sha256)
VALUES ({id}, {trial}, {lease}, {n_bytes}, {sha256}) ON CONFLICT DO NOTHING RETURNING checkpoint_id
"""


@dataclass(frozen=True)
class Place:
    """A server that has states, reached by a connection; `schema` is that of its extension."""

    connection: Connection
    schema: str


@dataclass(frozen=True)
class KnownState:
    """A state as the control server knows it: what a node has under its number has to be that."""

    checkpoint_id: int
    trial_id: int
    n_bytes: int
    sha256: str


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


async def has_state(node: Connection, state: KnownState) -> bool:
    """Say whether a node has the bytes of a state; what it has under that number and is another one is removed."""
    if (store := other_store(node)) is not None:
        found = await store.has_state(state)
    else:
        values = [state.checkpoint_id, state.trial_id, state.sha256]
        found = bool(await (await node.execute(HAS_STATE, values)).fetchall())
    if found:
        return True
    await forget_state(node, state.checkpoint_id)
    return False


async def forget_state(node: Connection, checkpoint_id: int) -> None:
    """Remove a state from a node."""
    if (store := other_store(node)) is not None:
        await store.drop_states([checkpoint_id])
        return
    await node.execute(DROP_STATE, [checkpoint_id])


async def bring_state(source: Place, node: Connection, state: KnownState, lease_number: int) -> int:
    """Copy a state to a node that may have it already; return the bytes. Raises NotFound where the source lacks it."""
    store, there = other_store(node), other_store(source.connection)
    and_here = NOTHING if there is None else there.and_here
    query = sql.SQL(STATE_OUT[source.schema]).format(id=sql.Literal(state.checkpoint_id), and_here=and_here)
    into: sql.Composable = sql.SQL("easeml_segment.checkpoint_chunks (checkpoint_id, chunk_number, bytes)")
    if store is not None:
        lead, into = store.chunk_lead(state, lease_number), store.chunk_columns
        query = sql.SQL("SELECT {} q.chunk_number, q.bytes FROM ({}) q").format(lead, query)
    try:
        n_bytes = 0
        if await _begin_state(node, store, state, lease_number):
            n_bytes = await copy_rows(source.connection, node, query, into)
            if n_bytes <= EMPTY_COPY_BYTES:
                raise NotFound(f"checkpoint {state.checkpoint_id} is not there")
            if n_bytes < state.n_bytes:
                raise CorruptCheckpoint(f"checkpoint {state.checkpoint_id} has {n_bytes} of its {state.n_bytes} bytes")
        await node.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(psycopg.Error, ServerUnavailable):
            await soon(node.execute("ROLLBACK"))
        raise
    return n_bytes


async def _begin_state(node: Connection, store: OtherStore | None, state: KnownState, lease_number: int) -> bool:
    """Begin a transaction, and the row of a state; return False where the node has it already."""
    if store is not None:
        await node.execute("BEGIN")
        return not await store.has_number(state.checkpoint_id)
    begin = sql.SQL(NEW_STATE).format(
        id=state.checkpoint_id, trial=state.trial_id, lease=lease_number, n_bytes=state.n_bytes, sha256=state.sha256
    )
    begun = await node.execute(begin)
    begun.nextset()
    return await begun.fetchone() is not None


async def bring_known(control: Connection, node: Connection, state: KnownState, lease_number: int) -> None:
    """Have a state that the control server keeps on a node, too. Raises NotFound where it is there no more."""
    if not await has_state(node, state):
        await bring_state(Place(control, CONTROL), node, state, lease_number)


async def fetch_state(node: Connection, control: Connection, state: KnownState, tenant: str) -> int:
    """Copy a state from a node to the control server, in the transaction that its connection is in.

    Return the bytes. What a node sends is checked: it writes nothing but these bytes, of this length and hash. Raises
    CorruptCheckpoint.
    """
    store = other_store(node)
    and_here = NOTHING if store is None else store.and_here
    read = sql.SQL(CHUNKS_OUT).format(id=sql.Literal(state.checkpoint_id), and_here=and_here)
    n_bytes, digest, number = 0, hashlib.sha256(), 0
    async with node.cursor().copy(read) as rows, control.cursor().copy(CHUNKS_IN) as written:
        rows.set_types(["bytea"])
        written.set_types(["int8", "name", "int4", "bytea"])
        while row := await soon(rows.read_row()):
            (chunk,) = row
            n_bytes += len(chunk)
            digest.update(chunk)
            if n_bytes > state.n_bytes:
                break
            await soon(written.write_row((state.checkpoint_id, tenant, number, chunk)))
            number += 1
    if n_bytes and (n_bytes != state.n_bytes or digest.hexdigest() != state.sha256):
        raise CorruptCheckpoint(f"checkpoint {state.checkpoint_id} is not what its node said of it")
    return n_bytes
