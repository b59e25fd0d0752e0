"""Tasks whose examples change: versions are packed, and runs begin."""

from __future__ import annotations

from typing import Protocol


class TaskStore(Protocol):
    """Looks after tasks, beside the units."""

    async def advance(self) -> None:
        """Have tasks looked at whose examples were fed or switched, in the background."""
