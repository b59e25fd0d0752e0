"""Time, for budgets and heartbeats."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now_seconds(self) -> float:
        """Return the seconds since some fixed instant."""
