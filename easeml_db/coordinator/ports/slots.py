"""Slots as the tables keep them."""

from __future__ import annotations

from typing import Protocol

from easeml_db.words.topology import Slot


class SlotStore(Protocol):
    """Reads slots, and records which of them work."""

    async def all_slots(self) -> list[Slot]:
        """Return all slots, whatever their status."""

    async def lose(self, slot_id: int, reason: str) -> None:
        """Mark a slot as lost: a unit still running there can no longer be recorded. A stale lease changes nothing."""

    async def explain(self, slot_id: int, reason: str | None) -> None:
        """Record why a slot that should work does not; None: it works."""

    async def recover(self) -> list[int]:
        """Reactivate the lost slots whose stuck process is gone; return them."""
