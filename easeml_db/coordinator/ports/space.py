"""Space on the server's disk that pruned states have left."""

from __future__ import annotations

from typing import Protocol


class StateSpace(Protocol):
    """Frees the space of pruned states."""

    async def reclaim(self) -> int:
        """Request a vacuum of pruned states; return the bytes of the states that are kept."""
