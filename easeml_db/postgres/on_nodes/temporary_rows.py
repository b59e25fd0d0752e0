"""Rows of temporary tables of nodes on their way: some pages of a table at a time.

What a worker of Citus is asked for through its coordinator is there as a whole before its first row comes. Who waits
for it is not to wait long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from psycopg import sql

from easeml_db.postgres.nodes.node_store import Arrival, Connection, NodeStore
from easeml_db.postgres.nodes.node_works import Columns, NodeWork, segment_errors
from easeml_db.postgres.nodes.row_copies import copy_rows

PAGES = "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::bigint AS n"
COLUMNS = """
SELECT attname::text AS name, format_type(atttypid, -1) AS kind FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND (%s::name[] IS NULL OR attname = ANY (%s::name[])) ORDER BY attnum
"""
NARROW_PAGES = 4096  # of rows of some numbers: half a million
ONE_PAGE = 1  # of rows whose bytes lie beside it: sixty blocks, the answers for these, or what they add to statistics
PIECES = "pg_temp.easeml_pieces"
PIECE: Mapping[str, str] = {
    "split": "text", "part": "int4", "block": "int4", "sender": "int4", "n_rows": "int4", "positions": "bytea",
    "inputs": "bytea", "targets": "bytea",
}  # fmt: skip
PIECES_OUT = "SELECT * FROM pg_temp.easeml_pieces WHERE part = ANY ({parts}) AND"


async def columns_of(control: Connection, table: str, *names: str) -> Columns:
    """Return columns of a table of the control server, which are those of its likes on nodes: all, or these."""
    chosen = list(names) or None
    rows = await (await control.execute(COLUMNS, [table, chosen, chosen])).fetchall()
    return {row["name"]: row["kind"] for row in rows}


async def bring_rows(
    work: NodeWork,
    control: Connection,
    query: sql.SQL | sql.Composed,
    table: str,
    columns: Columns,
    into: sql.Composable,
) -> None:
    """Copy what a query finds in a temporary table of a node to the control server; it ends with FROM or WHERE."""
    n_pages = ONE_PAGE if "bytea" in columns.values() else NARROW_PAGES
    async for part in _parts(work, query, table, n_pages):
        async with segment_errors(work.node):
            await copy_rows(work.connection, control, work.read(part, columns), into)


async def send_pieces(work: NodeWork, target: NodeStore, parts: Sequence[int]) -> int:
    """Copy packed rows of some partitions from a node to another; return the bytes."""
    n_bytes, query = 0, sql.SQL(PIECES_OUT).format(parts=list(parts))
    async for some in _parts(work, query, PIECES, ONE_PAGE):
        arrival = Arrival(work.read(some, PIECE), sql.SQL(PIECES), tuple(PIECE.values()))
        n_bytes += await target.receive(work.connection, arrival)
    return n_bytes


async def _parts(
    work: NodeWork, query: sql.SQL | sql.Composed, table: str, n_pages: int
) -> AsyncIterator[sql.Composed]:
    """Yield the query for some pages of its table after the others."""
    (size,) = await work.execute(PAGES, table)
    for first in range(0, size["n"], n_pages):
        within = sql.SQL(" ctid >= {} AND ctid < {}").format(f"({first},0)", f"({first + n_pages},0)")
        yield query + within
