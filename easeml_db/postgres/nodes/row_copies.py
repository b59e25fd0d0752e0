"""Transfer of rows from one server to another by binary COPY; this process holds some pieces at a time.

A server sends a piece for each row. What is done for each piece makes a transfer of narrow rows slow, so they are
written together, and one timer is put off for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import sql

from easeml_db.errors import ServerUnavailable
from easeml_db.postgres.nodes.node_store import Connection

T = TypeVar("T")

SILENCE_SECONDS = 20.0
BYTES_AT_ONCE = 1 << 16
OUT: LiteralString = "COPY ({}) TO STDOUT (FORMAT binary)"


async def copy_rows(source: Connection, target: Connection, query: sql.Composable, into: sql.Composable) -> int:
    """Copy the rows of a query into columns of a table of another server; return the bytes on the wire."""
    n_bytes = 0
    read = sql.SQL(OUT).format(query)
    write = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(into)
    async with copying(source.cursor().copy(read)) as rows, copying(target.cursor().copy(write)) as written:
        while pieces := await _next_pieces(rows):
            n_bytes += len(pieces)
            await soon(written.write(pieces))
    return n_bytes


@asynccontextmanager
async def copying(copy: AbstractAsyncContextManager[psycopg.AsyncCopy]) -> AsyncIterator[psycopg.AsyncCopy]:
    """Begin and end a COPY of a server that may be stopped. Raises ServerUnavailable."""
    begun = await soon(copy.__aenter__())
    try:
        yield begun
    except BaseException as error:
        with contextlib.suppress(ServerUnavailable):
            await soon(copy.__aexit__(type(error), error, error.__traceback__))
        raise
    await soon(copy.__aexit__(None, None, None))


async def _next_pieces(rows: psycopg.AsyncCopy) -> bytes:
    """Return the next piece, empty at the end. Raises ServerUnavailable."""
    pieces: list[Any] = []
    n_bytes = 0
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(SILENCE_SECONDS) as silence:
            while n_bytes < BYTES_AT_ONCE and (piece := await rows.read()):
                pieces.append(piece)
                n_bytes += len(piece)
                silence.reschedule(loop.time() + SILENCE_SECONDS)
    except TimeoutError as error:
        raise _silent() from error
    return b"".join(pieces)


async def soon(work: Awaitable[T]) -> T:
    """Wait for a server, which may be stopped without its connections being cut. Raises ServerUnavailable."""
    try:
        return await asyncio.wait_for(work, SILENCE_SECONDS)
    except TimeoutError as error:
        raise _silent() from error


def _silent() -> ServerUnavailable:
    return ServerUnavailable(f"a server has not answered for {SILENCE_SECONDS:.0f} seconds")
