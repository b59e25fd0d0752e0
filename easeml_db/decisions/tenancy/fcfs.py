"""First come, first served: the run that arrived first, until its arms are exhausted."""

from __future__ import annotations

from easeml_db.decisions.tenancy.contract import Choice, Forgetful
from easeml_db.decisions.tenancy.standings import Standings


class Fcfs(Forgetful):
    """ease.ml ends a tenant when "its optimal" is found, which cannot be observed; here it ends when no arm is left."""

    def choose(self, standings: Standings) -> Choice:
        """Choose the earliest run that can open an arm."""
        return Choice(standings.first(standings.can_open), "fcfs", standings.can_open.copy())
