"""Looks after tasks in the background: what was fed or switched is packed, and runs begin by their rules."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import psycopg

from easeml_db.postgres import background
from easeml_db.postgres.connection import connect
from easeml_db.postgres.store_session import SETTINGS, StoreSession

DUE = "SELECT task_id FROM easeml.due_tasks(%(is_first)s) AS t(task_id)"
ADVANCE = "SELECT easeml.advance_task(%(task_id)s, %(lease_number)s) AS run_id"
HELD = 0  # instead of a run: somebody holds the task


class PostgresTasks:
    """TaskStore on PostgreSQL; packing takes seconds, so it has a session of its own, for which no unit waits."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._working: asyncio.Task[None] | None = None
        self._connection: psycopg.AsyncConnection[dict[str, Any]] | None = None
        self._is_first = True  # tasks may have new architectures since the last coordinator
        self._again: dict[int, None] = {}  # tasks that nobody could look at, in the order in which they were met

    async def advance(self) -> None:
        """Have tasks looked at whose examples were fed or switched, in the background."""
        if self._working is None or self._working.done():
            self._working = background.begin(self._advance())  # one that failed is tried again

    async def close(self) -> None:
        """End the work and its session."""
        if self._working is not None:
            self._working.cancel()
        if self._connection is not None:
            await self._connection.close()

    async def _advance(self) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = await connect(self._session.dsn, "easeml coordinator (tasks)", **SETTINGS)
        rows = await (await self._connection.execute(DUE, {"is_first": self._is_first})).fetchall()
        due, self._again = {row["task_id"]: None for row in rows} | self._again, {}
        self._is_first = False
        for task_id in due:
            # What one task meets with, others need not wait for: it is looked at again the next time.
            with contextlib.suppress(psycopg.Error):
                values = {"task_id": task_id, "lease_number": self._session.lease_number}
                row = await (await self._connection.execute(ADVANCE, values)).fetchone()
                if row is None or row["run_id"] != HELD:
                    continue
            self._again[task_id] = None
