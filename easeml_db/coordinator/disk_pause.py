"""A pause while a disk is full: the coordinator starts no units, and each pause is longer than the last.

In each, the room of states that were pruned, or whose writing was rolled back, is made free again.
"""

from __future__ import annotations

import contextlib

from easeml_db.coordinator.ports.messages import Order
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.coordinator.ports.space import StateSpace
from easeml_db.errors import EasemlError, OutOfSpace

PAUSE_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)


class DiskPause:
    """The end of the pause; `until_seconds` lies in the past while there is room on the disk."""

    def __init__(self, runs: RunStore, space: StateSpace) -> None:
        self._runs, self._space = runs, space
        self._n_pauses = 0  # in a row
        self.until_seconds = 0.0

    def recorded(self) -> None:
        """Begin with short pauses again: there is room."""
        self._n_pauses = 0

    async def begin(self, order: Order, error: EasemlError, now_seconds: float) -> None:
        """Begin a pause; the first time, note it in the run's history if there is room for that."""
        if now_seconds < self.until_seconds:
            return
        if self._n_pauses == 0:
            with contextlib.suppress(OutOfSpace):
                await self._runs.note(order.unit.run_id, order.unit.trial_id, "disk full", f"{error}; waiting for room")
        self.until_seconds = now_seconds + PAUSE_SECONDS[min(self._n_pauses, len(PAUSE_SECONDS) - 1)]
        self._n_pauses += 1
        with contextlib.suppress(OutOfSpace):
            await self._space.reclaim()
