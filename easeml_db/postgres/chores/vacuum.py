"""Vacuums the states that trials have left behind, in the background."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from easeml_db.postgres import background
from easeml_db.postgres.connection import connect
from easeml_db.postgres.stores.store_session import SETTINGS, StoreSession
from easeml_db.postgres.versions import FIRST_WITH_MAINTAIN

VACUUM = "VACUUM (TRUNCATE false) easeml.checkpoints, easeml.checkpoint_chunks"


class PostgresStateSpace:
    """StateSpace on PostgreSQL; units need not wait for a vacuum, so it has a session of its own.

    Before PostgreSQL 17 autovacuum frees the space, by the settings of the tables (sql/units/tables.sql).
    """

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._has_to_vacuum = False
        self._vacuuming: asyncio.Task[None] | None = None
        self._vacuumer: psycopg.AsyncConnection[dict[str, Any]] | None = None

    async def reclaim(self) -> int:
        """Vacuum pruned states in the background; return the bytes of the others."""
        self._has_to_vacuum = self._session.server_version >= FIRST_WITH_MAINTAIN
        if self._has_to_vacuum and (self._vacuuming is None or self._vacuuming.done()):
            self._vacuuming = background.begin(self._vacuum())  # a failed one is tried again
        return int((await self._session.row("live_bytes"))["n_bytes"])

    async def close(self) -> None:
        """End the vacuum and its session."""
        if self._vacuuming is not None:
            self._vacuuming.cancel()
        if self._vacuumer is not None:
            await self._vacuumer.close()

    async def _vacuum(self) -> None:
        """Vacuum until there is no further request. The session stays open, because opening one for each vacuum would
        cost as much as the vacuum.
        """
        if self._vacuumer is None or self._vacuumer.closed:
            self._vacuumer = await connect(self._session.dsn, "easeml coordinator (vacuum)", **SETTINGS)
        while self._has_to_vacuum:
            self._has_to_vacuum = False
            await self._vacuumer.execute(VACUUM)
