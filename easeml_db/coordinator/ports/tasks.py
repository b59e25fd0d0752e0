"""Tasks whose examples change: versions are packed, and runs begin."""

from __future__ import annotations

from typing import Protocol


class TaskStore(Protocol):
    """Advances tasks, beside the units."""

    async def advance(self) -> None:
        """Check, in the background, tasks whose examples were fed or switched."""
