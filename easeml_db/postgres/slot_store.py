"""Slots in PostgreSQL."""

from __future__ import annotations

import contextlib

import psycopg

from easeml_db.postgres.store_session import StoreSession
from easeml_db.words.topology import Slot


class PostgresSlots:
    """SlotStore on PostgreSQL."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def all_slots(self) -> list[Slot]:
        """Return all slots, in whatever state."""
        return [Slot(**row) for row in await self._session.rows("slots")]

    async def lose(self, slot_id: int, reason: str) -> None:
        """Mark a slot as lost: what its unit may still do is not recorded any more."""
        # A process that is stuck within a transaction may hold the slot's row; the coordinator must not wait for it.
        # Its unit is fenced all the same, by its trial's progress.
        with contextlib.suppress(psycopg.errors.LockNotAvailable):
            async with self._session.transaction():
                await self._session.set_locally("SET LOCAL lock_timeout = '1s'")
                await self._session.row("lose_slot", slot_id=slot_id, reason=reason)

    async def explain(self, slot_id: int, reason: str | None) -> None:
        """Say why a slot that should work does not; None: it does."""
        await self._session.row("explain_slot", slot_id=slot_id, reason=reason)

    async def recover(self) -> list[int]:
        """Make active again the lost slots whose stuck process is gone; return them."""
        return [row["slot_id"] for row in await self._session.rows("recover_slots")]
