"""Greedy: the run with the largest estimated regret (ease.ml, algorithm 2).

    line 7   candidates V: runs whose sig is at least the mean of all that can open an arm
    line 8   among them the largest gap; `max_sigma` and `random` keep the same regret bound

With weights, sig and gap count times the weight. A run none of whose arms is finished has no sig yet: it is no
candidate while others are.
"""

from __future__ import annotations

import numpy as np

from easeml_db.decisions.tenancy.contract import Choice
from easeml_db.decisions.tenancy.draws import Draws
from easeml_db.decisions.tenancy.standings import Mask, Standings
from easeml_db.errors import InvalidArgument

RULES = ("max_gap", "max_sigma", "random")


class Greedy(Draws):
    """`rule` is how line 8 chooses among the candidates."""

    def __init__(self, rule: str = "max_gap", seed: int = 0) -> None:
        if rule not in RULES:
            raise InvalidArgument(f"rule: expected one of {', '.join(RULES)}, got {rule!r}")
        super().__init__(seed)
        self._rule = rule

    def choose(self, standings: Standings) -> Choice:
        """Follow lines 7 and 8."""
        candidates = self.candidates(standings)
        return Choice(self._among(candidates, standings), "greedy", candidates)

    def candidates(self, standings: Standings) -> Mask:
        """Return V of line 7."""
        measured = standings.can_open & ~np.isnan(standings.sig)
        # Possible while the first arms are still under way: V is then every run.
        if not measured.any():
            return standings.can_open.copy()
        sig = np.where(measured, _weighted(standings.sig, standings.weight), -np.inf)
        # "At least", not "above": among runs of equal sig V must not be empty.
        candidates: Mask = sig >= _mean(sig[measured])
        return candidates

    def _among(self, candidates: Mask, standings: Standings) -> int:
        if self._rule == "random":
            return int(self.generator().choice(np.flatnonzero(candidates)))
        # Either all of V have a sig or none has; without any, `max_sigma` has nothing to compare.
        by_gap = self._rule == "max_gap" or np.isnan(standings.sig[candidates]).any()
        return standings.largest(_weighted(standings.gap if by_gap else standings.sig, standings.weight), candidates)


def _weighted(potential: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return potentials that count as often as their weights say. They may be negative, where more weight has to bring
    them nearer to zero, and not farther away.
    """
    with np.errstate(invalid="ignore"):  # NaN and infinity stay what they are
        weighted: np.ndarray = np.where(potential < 0, potential / weight, potential * weight)
    return weighted


def _mean(values: np.ndarray) -> float:
    """Return the mean, and not more than the largest value: summing equal numbers may round above them."""
    return float(min(values.mean(), values.max()))
