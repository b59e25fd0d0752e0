"""Slots in PostgreSQL."""

from __future__ import annotations

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
        # A process that is stuck within a transaction may hold the slot's row. Then nothing is written; its unit is
        # fenced all the same, by its trial's progress.
        await self._session.write("lose_slot", slot_id=slot_id, reason=reason)

    async def explain(self, slot_id: int, reason: str | None) -> None:
        """Say why a slot that should work does not; None: it does."""
        await self._session.write("explain_slot", slot_id=slot_id, reason=reason)

    async def recover(self) -> list[int]:
        """Make active again the lost slots whose stuck process is gone; return them."""
        return [row["slot_id"] for row in await self._session.rows("recover_slots")]
