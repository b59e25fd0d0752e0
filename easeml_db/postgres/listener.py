"""The connection that holds the coordinator's advisory lock, and hears what others notify."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, LiteralString

import psycopg

from easeml_db.coordinator.ports.messages import Message, RunChanged, SlotsChanged, TenantsChanged
from easeml_db.postgres import background
from easeml_db.postgres.connection import connect, unavailable

ADVISORY_KEY = 7_202_011_708_307  # arbitrary, fixed: "easeml" in one database
STANDBY_SECONDS = 1.0


class Listener:
    """Delivers a message for every notification, for as long as the lock is held."""

    def __init__(self, dsn: str, deliver: Callable[[Message], None], on_standby: Callable[[], None]) -> None:
        self._dsn, self._deliver, self._on_standby = dsn, deliver, on_standby
        self._listening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect."""
        self._connection = await connect(self._dsn, "easeml coordinator (listener)", idle_session_timeout="0")

    async def close(self) -> None:
        """Close the connection; the advisory lock goes with it."""
        if self._listening is not None:
            self._listening.cancel()
        await self._connection.close()

    async def lock(self) -> None:
        """Wait for the advisory lock; report once that another coordinator has it."""
        # Asking again and again, and not waiting in the server: a waiting statement would hold back vacuum.
        is_told = False
        while not (await self._row("SELECT pg_try_advisory_lock(%s) AS locked", [ADVISORY_KEY]))["locked"]:
            if not is_told:
                self._on_standby()
            is_told = True
            await asyncio.sleep(STANDBY_SECONDS)

    async def listen(self) -> None:
        """Deliver notifications from now on."""
        await self._row("LISTEN easeml_runs")
        await self._row("LISTEN easeml_slots")
        await self._row("LISTEN easeml_tenants")
        self._listening = background.begin(self._listen())  # a broken one shows at the next heartbeat

    @property
    def is_lost(self) -> bool:
        """Say whether the connection broke, and the lock with it."""
        return self._listening is not None and self._listening.done()

    async def _listen(self) -> None:
        async for notice in self._connection.notifies():
            # Anybody may notify: what is no number is not for us.
            if notice.channel == "easeml_slots":
                self._deliver(SlotsChanged())
            elif notice.channel == "easeml_tenants":
                self._deliver(TenantsChanged())
            elif notice.payload.isascii() and notice.payload.isdigit() and len(notice.payload) < 19:
                self._deliver(RunChanged(int(notice.payload)))

    async def _row(self, statement: LiteralString, values: Sequence[object] = ()) -> dict[str, Any]:
        try:
            cursor = await self._connection.execute(statement, values or None)
            return (await cursor.fetchone() or {}) if cursor.description else {}
        except psycopg.OperationalError as error:
            raise unavailable(error) from error
