"""The best arm of all runs per unit of cost (multi-device, multi-tenant selection: Yu et al., AISTATS 2020).

Every run's score is the largest expected improvement per unit of cost among its arms; the largest, times the
weight, is served.
"""

from __future__ import annotations

from easeml_db.decisions.tenancy.contract import Choice, Forgetful
from easeml_db.decisions.tenancy.standings import Standings


class EiRate(Forgetful):
    """Needs the arm rule ei_rate, whose scores it compares."""

    def choose(self, standings: Standings) -> Choice:
        """Choose the run with the largest score."""
        place = standings.largest(standings.score * standings.weight, standings.can_open)
        return Choice(place, "ei_rate", standings.can_open.copy())
