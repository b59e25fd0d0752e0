"""The rule for when pruned states leave enough space to justify a vacuum."""

from __future__ import annotations

from easeml_db.coordinator.ports.space import StateSpace


class Reclaiming:
    """Counts pruned bytes up to `least_bytes`, and at least a fraction of the live ones: a vacuum reads the index."""

    def __init__(self, space: StateSpace, least_bytes: int, least_fraction: float) -> None:
        self._space, self._least_bytes, self._least_fraction = space, least_bytes, least_fraction
        self._pruned_bytes = 0
        self._live_bytes = 0

    async def add(self, pruned_bytes: int) -> None:
        """Count pruned bytes, and have their space freed once it is worth a vacuum."""
        self._pruned_bytes += pruned_bytes
        if self._pruned_bytes >= max(self._least_bytes, self._least_fraction * self._live_bytes):
            self._pruned_bytes = 0
            self._live_bytes = await self._space.reclaim()
