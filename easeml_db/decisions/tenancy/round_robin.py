"""Round robin: in turn, runs whose arms are exhausted skipped; with weights, turns in their proportion.

Stride scheduling (Waldspurger and Weihl 1995): each turn moves a run's clock on by 1 / weight, and the run whose
clock is least is served. With equal weights that is ease.ml's "t mod n". A run that arrives, or comes back
after a pause, starts at the least clock of the others, so that it neither catches up nor waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from easeml_db.decisions.tenancy.contract import Choice, Costless
from easeml_db.decisions.tenancy.standings import Floats, Standings


class RoundRobin(Costless):
    """Keeps the clocks."""

    def __init__(self) -> None:
        self._clocks: Floats = np.empty(0)
        self._now = 0.0  # the least clock after the last turn

    def copy(self) -> RoundRobin:
        """Return independent clocks in the present state."""
        copied = RoundRobin()
        copied._clocks, copied._now = self._clocks.copy(), self._now
        return copied

    def choose(self, standings: Standings) -> Choice:
        """Choose the run with the least clock."""
        n = len(standings.can_open)
        if len(self._clocks) < n:
            self._clocks = np.append(self._clocks, np.full(n - len(self._clocks), self._now))
        np.maximum(self._clocks, self._now, out=self._clocks)
        place = standings.largest(-self._clocks, standings.can_open)
        self._clocks[place] += 1.0 / standings.weight[place]
        self._now = float(self._clocks[standings.can_open].min())
        return Choice(place, "round_robin", standings.can_open.copy())

    def renew(self, left: int | None = None) -> None:
        """Drop the clock of a run that left; the others stay."""
        if left is not None and left < len(self._clocks):
            self._clocks = np.delete(self._clocks, left)

    def memory(self) -> Mapping[str, Any]:
        """Return the clocks, and the least of them."""
        return {"now": self._now, "clocks": self._clocks.tolist()}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Restore the clocks."""
        self._now, self._clocks = float(memory["now"]), np.asarray(memory["clocks"], dtype=float)
