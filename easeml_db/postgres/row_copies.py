"""Transfer of rows from one server to another by binary COPY; this process holds one piece at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import LiteralString, TypeVar

from psycopg import sql

from easeml_db.errors import ServerUnavailable
from easeml_db.postgres.node_store import Connection

T = TypeVar("T")

SILENCE_SECONDS = 20.0
OUT: LiteralString = "COPY ({}) TO STDOUT (FORMAT binary)"


async def copy_rows(source: Connection, target: Connection, query: sql.Composable, into: sql.Composable) -> int:
    """Copy the rows of a query into columns of a table of another server; return the bytes on the wire."""
    n_bytes = 0
    read = sql.SQL(OUT).format(query)
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
