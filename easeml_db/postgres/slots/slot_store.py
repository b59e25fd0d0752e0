"""Slots in PostgreSQL."""

from __future__ import annotations

from easeml_db.postgres.stores.store_session import StoreSession
from easeml_db.words.topology import Slot


class PostgresSlots:
    """SlotStore on PostgreSQL."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def all_slots(self) -> list[Slot]:
        """Return all slots, whatever their status."""
        return [Slot(**row) for row in await self._session.rows("slots")]

    async def lose(self, slot_id: int, reason: str) -> None:
        """Mark a slot as lost: nothing that its unit still does can be recorded."""
        # A process that is stuck within a transaction may hold the slot's row. Then nothing is written; its unit is
        # fenced all the same, by its trial's progress.
        await self._session.write("lose_slot", slot_id=slot_id, reason=reason)

    async def explain(self, slot_id: int, reason: str | None) -> None:
        """Record why a slot that should work does not; None: it works."""
        await self._session.write("explain_slot", slot_id=slot_id, reason=reason)

    async def recover(self) -> list[int]:
        """Reactivate the lost slots whose stuck process is gone; return them."""
        return [row["slot_id"] for row in await self._session.rows("recover_slots")]
