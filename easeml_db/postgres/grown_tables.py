"""Has sessions plan anew where tables have grown: of slots, of whoever predicts or reads, and the coordinator's own.

A session keeps its plans. One that was made while a table was a page long reads all of it, until statistics change.
Autovacuum looks for that once a minute; a tenant whose runs have many trials fills a table in less.
"""

from __future__ import annotations

import asyncio
import time

from easeml_db.errors import EasemlError
from easeml_db.postgres import background
from easeml_db.postgres.store_session import StoreSession

LOOK_SECONDS = 1.0
RESTS = 4  # times as long as the look took: one that finds nothing takes less than a millisecond


class GrownTables:
    """Looks at the tables for as long as this process holds the lease, which the leading session knows."""

    def __init__(self, leading: StoreSession) -> None:
        self._leading = leading
        self._own: StoreSession | None = None  # opened when the lease is ours
        self._keeping: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start looking."""
        self._keeping = background.begin(self._keep())

    async def close(self) -> None:
        """Look no more."""
        if self._keeping is not None:
            self._keeping.cancel()
        await self._leave()

    async def look(self) -> float:
        """Renew the statistics of tables that have grown; return for how many seconds to rest."""
        began = time.monotonic()
        try:
            await (await self._session()).row("analyse_grown")
        except EasemlError:  # rows that somebody holds, no server: the next look begins anew
            await self._leave()
        return max(LOOK_SECONDS, RESTS * (time.monotonic() - began))

    async def _keep(self) -> None:
        rest_seconds = LOOK_SECONDS
        while True:
            await asyncio.sleep(rest_seconds)
            if self._leading.lease_number:
                rest_seconds = await self.look()

    async def _session(self) -> StoreSession:
        if self._own is None:
            own = StoreSession(self._leading.dsn, "easeml coordinator (statistics)")
            await own.open()
            self._own = own
        return self._own

    async def _leave(self) -> None:
        if self._own is not None:
            await self._own.close()
            self._own = None
