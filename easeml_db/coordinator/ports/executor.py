"""What runs units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from easeml_db.coordinator.ports.messages import Order
from easeml_db.words.topology import Slot


class Executor(Protocol):
    """Runs units on slots. The outcome of an order (UnitRecorded, Piloted, UnitFailed or SlotStuck) arrives in the
    inbox exactly once. After a lost unit, SlotReady arrives for each of its slots once it can work again.
    """

    async def open(self, slots: Sequence[Slot]) -> None:
        """Open sessions for these slots, and close those of all others; SlotReady arrives for each when it is warm."""

    async def start(self, order: Order) -> None:
        """Begin a unit on its slot, or a gang on its slots, and return at once."""

    async def cancel(self, slot_id: int) -> None:
        """Ask the slot's unit, and with it all of its gang, to stop; UnitFailed answers it, or UnitRecorded if it was
        faster."""

    async def close(self) -> None:
        """Cancel running units and close all sessions."""
