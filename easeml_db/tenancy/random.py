"""Random: any tenant that can play, with a probability in proportion to its weight."""

from __future__ import annotations

import numpy as np

from easeml_db.tenancy.contract import Choice, Forgetful
from easeml_db.tenancy.standings import Standings


class Random(Forgetful):
    """Draws depend on the seed and on the number of decisions alone, so that a restart does not repeat them."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed % 2**63

    def choose(self, standings: Standings) -> Choice:
        """Draw a tenant."""
        chances = np.where(standings.can_play, standings.weight, 0.0)
        rng = np.random.default_rng((self._seed, standings.n_decisions))
        drawn = int(np.searchsorted(np.cumsum(chances), rng.random() * chances.sum(), side="right"))
        tenant = min(drawn, len(chances) - 1)
        if not standings.can_play[tenant]:  # rounding at the upper end
            tenant = int(np.flatnonzero(standings.can_play)[-1])
        return Choice(tenant, "random", standings.can_play.copy())
