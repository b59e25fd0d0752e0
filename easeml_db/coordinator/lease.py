"""The coordinator's lease: the one place that checks whether it is still valid."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from easeml_db.coordinator.ports.lease import LeaseStore
from easeml_db.errors import NotFound, StaleLease, StandbyOnly

Written = TypeVar("Written")


class Lease:
    """The lease under which one coordinator may write until another takes over."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self.number = 0

    async def acquire(self) -> None:
        """Wait for the lease."""
        self.number = await self._store.acquire()

    async def confirm(self) -> None:
        """Raise StandbyOnly when another coordinator took over."""
        if not await self._store.is_held():
            raise StandbyOnly("another coordinator took over")

    async def write(self, writing: Awaitable[Written]) -> Written:
        """Await a fenced write and return its result.

        A refusal may mean that the lease is lost (raises StandbyOnly), or that the tables are ahead of the coordinator:
        then StaleLease or NotFound is passed to the caller.
        """
        try:
            return await writing
        except (NotFound, StaleLease):
            await self.confirm()
            raise

    async def heartbeat(self) -> None:
        """Confirm the lease."""
        await self.confirm()
        await self._store.heartbeat()

    async def release(self) -> None:
        """Release the lease, so that the next coordinator need not wait."""
        await self._store.release()
