"""The best arm per unit of cost under a robust belief, and turns for everybody: the mean is good, nobody is far behind.

Two rules share the cost:

    turn       a third of all cost: the run that has opened the fewest arms for its weight, the best score of equals
    ei_rate    the rest: the best arm of all runs per unit of cost, as in ei_rate.py, under the beliefs of robust.py

First service is a turn. So the turns have paid for r arms of every run once round robin alone, with the same beliefs
and 1 / share of the cost, would have; and each run is at least as far along its own order of arms:

    cost until a run has what m turns bring  <=  (cost of m turns of every run in round robin) / share

That is ease.ml's answer to policies without such a bound (section 4.4), with a constant that an administrator can
explain. It holds while beliefs are each run's own: what other runs show may change a run's order of arms.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from easeml_db.decisions.tenancy.contract import Choice
from easeml_db.decisions.tenancy.standings import Standings
from easeml_db.errors import InvalidArgument

SHARE = 1 / 3
TURN = "turn"
_TURNS = (TURN, "first_service")


class Robust:
    """Needs an arm rule that asks a robust belief; `share` of all cost goes to turns."""

    def __init__(self, share: float = SHARE) -> None:
        if not 0 <= share <= 1:
            raise InvalidArgument(f"share: expected a number from 0 to 1, got {share}")
        self._share = share
        self._owed = 0.0  # cost that is due to turns, less what they have had

    def copy(self) -> Robust:
        """Return an independent copy."""
        return copy(self)

    def choose(self, standings: Standings) -> Choice:
        """Choose by turn if turns are owed something, else the largest score."""
        scores, can_open = standings.score * standings.weight, standings.can_open
        if self._owed <= 0:
            return Choice(standings.largest(scores, can_open), "ei_rate", can_open.copy())
        n_turns = np.where(can_open, standings.n_opened / standings.weight, np.inf)
        least = n_turns == n_turns.min()
        return Choice(standings.largest(scores, least), TURN, least)

    def charge(self, phase: str, cost: float) -> None:
        """Count a turn's cost against what is owed."""
        self._owed += self._share * cost - cost * (phase in _TURNS)

    def renew(self, left: int | None = None) -> None:
        """Change nothing."""

    def memory(self) -> Mapping[str, Any]:
        """Return what is owed."""
        return {"owed": self._owed}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Restore it."""
        self._owed = float(memory["owed"])
