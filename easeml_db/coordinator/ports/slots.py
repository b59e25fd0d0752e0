"""Slots as the tables keep them."""

from __future__ import annotations

from typing import Protocol

from easeml_db.words.topology import Slot


class SlotStore(Protocol):
    """Reads slots, and records which of them work."""

    async def all_slots(self) -> list[Slot]:
        """Return all slots, in whatever state."""

    async def lose(self, slot_id: int, reason: str) -> None:
        """Mark a slot as lost: a unit that still runs there is not recorded any more. A stale lease loses nothing."""

    async def explain(self, slot_id: int, reason: str | None) -> None:
        """Say why a slot that should work does not; None: it does."""

    async def recover(self) -> list[int]:
        """Make active again the lost slots whose stuck process is gone; return them."""
