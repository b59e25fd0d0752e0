"""Round robin: in turn, tenants whose arms are exhausted skipped; with weights, turns in their proportion.

Stride scheduling (Waldspurger and Weihl 1995): each turn moves a tenant's clock on by 1 / weight, and the tenant
whose clock is least is served. With equal weights that is ease.ml's "t mod n". A tenant that arrives, or comes back
after a pause, starts at the least clock of the others, so that it neither catches up nor waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from easeml_db.decisions.tenancy.contract import Choice
from easeml_db.decisions.tenancy.standings import Floats, Standings


class RoundRobin:
    """Keeps the clocks."""

    def __init__(self) -> None:
        self._clocks: Floats = np.empty(0)
        self._now = 0.0  # the least clock after the last turn

    def copy(self) -> RoundRobin:
        """Return clocks that go on from here by themselves."""
        copied = RoundRobin()
        copied._clocks, copied._now = self._clocks.copy(), self._now
        return copied

    def choose(self, standings: Standings) -> Choice:
        """The tenant with the least clock."""
        n = len(standings.can_play)
        if len(self._clocks) < n:
            self._clocks = np.append(self._clocks, np.full(n - len(self._clocks), self._now))
        np.maximum(self._clocks, self._now, out=self._clocks)
        tenant = standings.largest(-self._clocks, standings.can_play)
        self._clocks[tenant] += 1.0 / standings.weight[tenant]
        self._now = float(self._clocks[standings.can_play].min())
        return Choice(tenant, "round_robin", standings.can_play.copy())

    def renew(self, left: int | None = None) -> None:
        """Clocks go on, without that of a tenant that left."""
        if left is not None and left < len(self._clocks):
            self._clocks = np.delete(self._clocks, left)

    def memory(self) -> Mapping[str, Any]:
        """The clocks, and the least of them."""
        return {"now": self._now, "clocks": self._clocks.tolist()}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Take over the clocks."""
        self._now, self._clocks = float(memory["now"]), np.asarray(memory["clocks"], dtype=float)
