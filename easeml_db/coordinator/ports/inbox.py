"""Where messages arrive."""

from __future__ import annotations

from typing import Protocol

from easeml_db.coordinator.ports.messages import Message


class Inbox(Protocol):
    """Hands out messages in the order in which they arrived."""

    async def next(self, timeout_seconds: float) -> Message | None:
        """Return the next message, or None after the timeout."""
