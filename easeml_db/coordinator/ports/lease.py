"""The lease: the number under which one coordinator at a time may write."""

from __future__ import annotations

from typing import Protocol


class LeaseStore(Protocol):
    """Grants the lease, and says who has it."""

    async def acquire(self) -> int:
        """Wait until no other coordinator is active; return a lease number that no other ever had."""

    async def is_held(self) -> bool:
        """Return whether the lease is still ours."""

    async def heartbeat(self) -> None:
        """Give a sign of life, or make sure that one is given. Raises ServerUnavailable when that cannot be."""

    async def release(self) -> None:
        """Give the lease back in good order."""
