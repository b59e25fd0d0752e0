"""Tasks that the coordinator repeats beside its loop, each in a session of its own."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from easeml_db.postgres import background
from easeml_db.postgres.stores.store_session import StoreSession

LOOK_SECONDS = 1.0


class RepeatedChore(ABC):
    """Takes turns for as long as this process holds the lease, which the leading session knows."""

    def __init__(self, leading: StoreSession, name: str, **settings: str) -> None:
        self._leading, self._name, self._settings = leading, name, settings
        self._opened: StoreSession | None = None  # opened when the lease is ours
        self._keeping: asyncio.Task[None] | None = None

    @abstractmethod
    async def take_turn(self) -> float:
        """Do the work that is due; return for how many seconds to rest."""

    def begin(self) -> None:
        """Start taking turns."""
        self._keeping = background.begin(self._keep())

    async def close(self) -> None:
        """Stop taking turns."""
        if self._keeping is not None:
            self._keeping.cancel()
        await self._leave()

    async def _keep(self) -> None:
        rest_seconds = LOOK_SECONDS
        while True:
            await asyncio.sleep(rest_seconds)
            if self._leading.lease_number:
                rest_seconds = await self.take_turn()

    async def _session(self) -> StoreSession:
        if self._opened is None:
            session = StoreSession(self._leading.dsn, f"easeml coordinator ({self._name})", **self._settings)
            await session.open()
            self._opened = session
        self._opened.lease_number = self._leading.lease_number
        return self._opened

    async def _leave(self) -> None:
        """Close the session; the next turn opens another."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None
