"""Transfer of states and packed rows from one server to another by binary COPY; this process holds one piece at a time.

A transfer arrives as a whole or not at all, and a second transfer under the same name finds the first.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import LiteralString

import psycopg
from psycopg import sql

from easeml_db.errors import CorruptCheckpoint, NotFound, ServerUnavailable
from easeml_db.postgres.nodes.node_store import Connection, KnownState, NodeStore, Source
from easeml_db.postgres.nodes.row_copies import copying, soon
from easeml_db.postgres.nodes.segment_store import ControlSource

# No COPY goes into a table with row-level security.
CHUNK_IN = "INSERT INTO easeml.checkpoint_chunks (checkpoint_id, tenant, chunk_number, bytes) VALUES (%s, %s, %s, %b)"
CHUNKS_OUT: LiteralString = """
COPY (SELECT q.bytes FROM ({chunks}) q ORDER BY q.chunk_number) TO STDOUT (FORMAT binary)
"""
EMPTY_COPY_BYTES = 21  # of the binary format: its beginning and its end


async def has_state(node: NodeStore, state: KnownState) -> bool:
    """Return whether a node has the bytes of a state; a different state under that number is removed."""
    if await node.has_state(state):
        return True
    await node.drop_state(state.checkpoint_id)
    return False


async def bring_state(source: Source, node: NodeStore, state: KnownState, lease_number: int) -> int:
    """Copy a state to a node that may have it already; return the bytes. Raises NotFound where the source lacks it."""
    arrival = node.arriving_state(state, lease_number, source.chunks_of(state.checkpoint_id))
    try:
        n_bytes = 0
        if await node.begin_state(state, lease_number):
            n_bytes = await node.receive(source.connection, arrival)
            if n_bytes <= EMPTY_COPY_BYTES:
                raise NotFound(f"checkpoint {state.checkpoint_id} is not there")
            if n_bytes < state.n_bytes:
                raise CorruptCheckpoint(f"checkpoint {state.checkpoint_id} has {n_bytes} of its {state.n_bytes} bytes")
        await soon(node.connection.execute("COMMIT"))
    except BaseException:
        with contextlib.suppress(psycopg.Error, ServerUnavailable):
            await soon(node.connection.execute("ROLLBACK"))
        raise
    return n_bytes


async def bring_known(control: Connection, node: NodeStore, state: KnownState, lease_number: int) -> None:
    """Copy a state that the control server keeps to a node. Raises NotFound if the control server no longer has it."""
    if not await has_state(node, state):
        await bring_state(ControlSource(control), node, state, lease_number)


async def fetch_state(node: Source, control: Connection, state: KnownState, tenant: str) -> int:
    """Copy a state from a node to the control server, in the transaction that its connection is in.

    Return the bytes. What a node sends is checked: only bytes of the expected length and hash are written. Raises
    CorruptCheckpoint.
    """
    read = sql.SQL(CHUNKS_OUT).format(chunks=node.chunks_of(state.checkpoint_id))
    n_bytes, digest, number = 0, hashlib.sha256(), 0
    async with copying(node.connection.cursor().copy(read)) as rows:
        rows.set_types(["bytea"])
        while row := await soon(rows.read_row()):
            (chunk,) = row
            n_bytes += len(chunk)
            digest.update(chunk)
            if n_bytes > state.n_bytes:
                break
            await soon(control.execute(CHUNK_IN, [state.checkpoint_id, tenant, number, chunk]))
            number += 1
    if n_bytes and (n_bytes != state.n_bytes or digest.hexdigest() != state.sha256):
        raise CorruptCheckpoint(f"checkpoint {state.checkpoint_id} is not what its node said of it")
    return n_bytes
