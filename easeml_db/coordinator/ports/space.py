"""Space on the server's disk that pruned states have left."""

from __future__ import annotations

from typing import Protocol


class StateSpace(Protocol):
    """Frees the space of pruned states."""

    async def reclaim(self) -> int:
        """Have the space of pruned states freed; return the bytes of those that are kept."""
