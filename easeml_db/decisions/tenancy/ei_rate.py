"""The best arm of all tenants per unit of cost (multi-device, multi-tenant selection: Yu et al., AISTATS 2020).

Every tenant's score is the largest expected improvement per unit of cost among its arms; the largest, times the
weight, is served.
"""

from __future__ import annotations

from easeml_db.decisions.tenancy.contract import Choice, Forgetful
from easeml_db.decisions.tenancy.standings import Standings


class EiRate(Forgetful):
    """Needs the arm rule ei_rate, whose scores it compares."""

    def choose(self, standings: Standings) -> Choice:
        """The tenant with the largest score."""
        tenant = standings.largest(standings.score * standings.weight, standings.can_play)
        return Choice(tenant, "ei_rate", standings.can_play.copy())
