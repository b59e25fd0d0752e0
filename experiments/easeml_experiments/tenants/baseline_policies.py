"""Policies that only experiments compare with: any run at random, and first come, first served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from easeml_db.decisions.tenancy.contract import Choice, Forgetful, Policy
from easeml_db.decisions.tenancy.draws import Draws
from easeml_db.decisions.tenancy.standings import Standings


class Random(Draws):
    """Draws any run that can open an arm, with a probability in proportion to its weight."""

    def choose(self, standings: Standings) -> Choice:
        """Draw a run."""
        chances = np.where(standings.can_open, standings.weight, 0.0)
        drawn = int(np.searchsorted(np.cumsum(chances), self.generator().random() * chances.sum(), side="right"))
        place = min(drawn, len(chances) - 1)
        if not standings.can_open[place]:  # rounding at the upper end
            place = int(np.flatnonzero(standings.can_open)[-1])
        return Choice(place, "random", standings.can_open.copy())


class Fcfs(Forgetful):
    """Serves the run that arrived first.

    ease.ml ends a tenant when "its optimal" is found, which cannot be observed; here it ends when no arm is left.
    """

    def choose(self, standings: Standings) -> Choice:
        """Choose the earliest run that can open an arm."""
        return Choice(standings.first(standings.can_open), "fcfs", standings.can_open.copy())


BASELINES: Mapping[str, Callable[[int], Policy]] = MappingProxyType({"random": Random, "fcfs": lambda seed: Fcfs()})
