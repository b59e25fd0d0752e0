"""Background work for tasks: it packs examples that were fed or switched, and starts runs by the tasks' rules."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from easeml_db.postgres import background
from easeml_db.postgres.connection import connect
from easeml_db.postgres.stores.store_session import SETTINGS, StoreSession

DUE = "SELECT task_id FROM easeml.due_tasks(%(is_first)s) AS t(task_id)"
ADVANCE = "SELECT easeml.advance_task(%(task_id)s, %(lease_number)s) AS run_id"
Connection = psycopg.AsyncConnection[dict[str, Any]]
HELD = 0  # instead of a run: the task is locked
LONGEST_WAIT_SECONDS = 8.0
"""Between two looks at a task that is held all the time."""


class PostgresTasks:
    """TaskStore on PostgreSQL. Packing takes seconds, so it has a session of its own, for which no unit waits."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._working: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._is_first = True  # tasks may have new architectures since the last coordinator
        self._held: dict[int, tuple[float, float]] = {}  # locked tasks: next check, and wait until then

    async def advance(self) -> None:
        """Check, in the background, tasks whose examples were fed or switched."""
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
        looked_at: set[int] = set()
        while due := [task_id for task_id in await self._due(self._connection) if task_id not in looked_at]:
            looked_at.update(due)
            for task_id in due:
                await self._take_step(self._connection, task_id)

    async def _due(self, connection: Connection) -> list[int]:
        """Return the tasks to check now: one of each tenant, and then the next ones, so that tenants take turns."""
        rows = await (await connection.execute(DUE, {"is_first": self._is_first})).fetchall()
        self._is_first = False
        return due_now([row["task_id"] for row in rows], self._held, time.monotonic())

    async def _take_step(self, connection: Connection, task_id: int) -> None:
        """Pack what changed of a task, and begin a run of it if its rule says so."""
        _, waited = self._held.pop(task_id, (0.0, 0.0))
        # An error of one task must not delay others: the task is checked again later.
        with contextlib.suppress(psycopg.Error):
            values = {"task_id": task_id, "lease_number": self._session.lease_number}
            row = await (await connection.execute(ADVANCE, values)).fetchone()
            if row is None or row["run_id"] != HELD:
                return
        seconds = min(max(0.5, 2 * waited), LONGEST_WAIT_SECONDS)
        self._held[task_id] = (time.monotonic() + seconds, seconds)


def due_now(listed: Sequence[int], held: Mapping[int, tuple[float, float]], now: float) -> list[int]:
    """Return the tasks to check: those that are listed, then others that are due to be checked again. held: for tasks
    that were locked, the time of the next check, on the same clock as now, and the wait until then, in seconds. A task
    that waits in this way is left out although it is listed.
    """
    again = [task_id for task_id, (at, _) in held.items() if at <= now]
    return list(
        dict.fromkeys([*(task_id for task_id in listed if task_id not in held or held[task_id][0] <= now), *again])
    )
