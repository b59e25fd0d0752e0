"""Round robin: in turn, tenants whose arms are exhausted skipped; with weights, turns in their proportion.

Stride scheduling (Waldspurger and Weihl 1995): each turn moves a tenant's clock on by 1 / weight, and the tenant
whose clock is least is served. With equal weights that is ease.ml's "t mod n". A tenant that arrives, or comes back
after a pause, starts at the least clock of the others, so that it neither catches up nor waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from easeml_db.tenancy.contract import Choice
from easeml_db.tenancy.standings import Standings


class RoundRobin:
    """Keeps the time; the tenants' clocks are a column of the standings."""

    def __init__(self) -> None:
        self._now = 0.0

    def choose(self, standings: Standings) -> Choice:
        """The tenant with the least clock."""
        np.maximum(standings.clock, self._now, out=standings.clock)
        tenant = int(np.argmin(np.where(standings.can_play, standings.clock, np.inf)))
        self._now = float(standings.clock[tenant])
        standings.clock[tenant] += 1.0 / standings.weight[tenant]
        return Choice(tenant, "round_robin", standings.can_play.copy())

    def renew(self) -> None:
        """Clocks go on."""

    def memory(self) -> Mapping[str, Any]:
        """The time."""
        return {"now": self._now}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Take over the time."""
        self._now = float(memory["now"])
