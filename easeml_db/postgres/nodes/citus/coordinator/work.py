"""The session of a packing or a job about a worker of Citus, of whose cluster only the coordinator is reached.

What is said goes to the worker as a text in a query of one key, within the transaction that the session is in, so
temporary tables of a transaction are there from statement to statement. A unit is a call that Citus delegates. Both
look where they are, and refuse to go on anywhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from easeml_db.postgres.nodes.citus.coordinator.store import CoordinatorStore
from easeml_db.postgres.nodes.node_works import Columns, Fields, NodeWork, segment_errors
from easeml_db.postgres.nodes.nodes import connect_to


class CoordinatorWork(NodeWork):
    """The session on any node, except for the way of its statements."""

    store: CoordinatorStore

    async def unit(self, work: str, order: str, context: str) -> Fields:
        """Do a unit on the worker, which commits; return its result."""
        call = self.store.worker.unit(work, order, context)
        async with segment_errors(self.node):
            cursor = await self._watched(asyncio.ensure_future(self.connection.execute(call)))
        result: Fields = (await cursor.fetchone() or {})["result"]
        return result

    def read(self, query: sql.Composable, columns: Columns) -> sql.Composable:
        """Return the query of the coordinator that returns what a query returns on the worker, of these very types."""
        names = {name: sql.Identifier(name).as_string() for name in columns}
        values = ", ".join(f"q.{names[name]}::{kind}" for name, kind in columns.items())
        asked = sql.SQL("SELECT {} FROM ({}) q({})").format(
            sql.SQL(values), query, sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        text = asked.as_string(self.connection)
        return self.store.worker.asked(text, ", ".join(f"{names[name]} {kind}" for name, kind in columns.items()))

    async def set_up(self, settings: Mapping[str, str]) -> None:
        """Give the process of the worker these settings: Citus hands on none of those of the session."""
        called = sql.SQL(", ").join(
            sql.SQL("set_config({}, {}, false)").format(sql.Literal(name), sql.Literal(value))
            for name, value in settings.items()
        )
        await self.execute(sql.SQL("SELECT {}").format(called).as_string(self.connection))

    async def _rows(self, statement: str, values: Sequence[object]) -> list[dict[str, Any]]:
        text = psycopg.AsyncClientCursor(self.connection).mogrify(statement.encode(), list(values))
        return await self.store.worker_rows(text)

    async def _visit(self) -> None:
        """Let the worker answer another session: an answer of its coordinator would not prove that it runs."""
        store = await connect_to(self.node, "easeml looks", {})
        try:
            await store.states(0)
        finally:
            await store.connection.close()
