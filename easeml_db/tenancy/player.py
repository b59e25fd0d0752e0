"""One tenant of the pool: what it believes, what it plays, and the numbers by which policies compare it.

t       plays so far, those under way included, plus 1
E       least bound of the arms played, each bound taken before its play (infinite before the first)
sig     E minus the LAST quality seen: the gap that is surely left, may be negative (ease.ml, algorithm 2, line 6)
best    largest quality so far, 0 before the first
gap     largest bound of the arms still offered, minus best (line 8)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from easeml_db.bandits.acquisition import ConfidenceBounds
from easeml_db.bandits.costs import check_costs
from easeml_db.bandits.posterior import Posterior
from easeml_db.bandits.prior import Prior, Vector, to_quality
from easeml_db.errors import InvalidArgument


@dataclass(frozen=True)
class Play:
    """An arm that was begun, with its bound at that time; `quality` is None while it is under way."""

    arm: int
    bound: float
    quality: float | None = None


class Player:
    """A tenant's bandit over K arms. `costs` (K,) are in units of the mean cost, `offered` (K,) says which arms exist
    for this tenant; an arm is played once unless `allow_replays`."""

    def __init__(
        self,
        prior: Prior,
        costs: Vector,
        confidence: ConfidenceBounds | None = None,
        *,
        offered: np.ndarray | None = None,
        allow_replays: bool = False,
    ) -> None:
        if costs.shape != (prior.n_arms,):
            raise InvalidArgument(f"costs: expected {prior.n_arms}, one for each arm, got shape {costs.shape}")
        check_costs(costs)
        self.posterior, self.costs = Posterior(prior), costs
        self.confidence = confidence or ConfidenceBounds()
        self.offered = np.ones(prior.n_arms, dtype=bool) if offered is None else offered.copy()
        self.allow_replays, self.n_arms = allow_replays, int(self.offered.sum())
        self.pending: list[int] = []
        self.qualities: dict[int, float] = {}  # the last one of each arm
        self.t, self.least_bound, self.sig, self.best = 1, math.inf, math.nan, 0.0
        self._renew()

    def _renew(self) -> None:
        """Bounds at the present t, shape (K,); minus infinity where an arm is not offered."""
        posterior = self.posterior
        self.variance = posterior.variance_with(self.pending) if self.pending else posterior.variance
        latent = self.confidence.bounds(posterior.mean, self.variance, self.costs, self.beta)
        self.bounds: Vector = np.where(self.offered, to_quality(latent, posterior.prior.link), -np.inf)

    @property
    def can_play(self) -> bool:
        """Say whether an arm is left."""
        return bool(self.offered.any())

    @property
    def beta(self) -> float:
        """Weight of the variance in the bounds at the present t."""
        return self.confidence.beta(self.n_arms, self.t)

    @property
    def gap(self) -> float:
        """Largest bound of the arms still offered, minus best so far: the estimated regret."""
        return float(self.bounds.max()) - self.best

    def begin(self, arm: int) -> float:
        """An arm is about to be played; return its bound."""
        if not self.offered[arm]:
            raise InvalidArgument(f"arm {arm} is not offered: it was played, or does not exist for this tenant")
        bound = float(self.bounds[arm])
        self.begun(arm, bound)
        return bound

    def begun(self, arm: int, bound: float) -> None:
        """An arm was begun with this bound, now or by another process."""
        self._count(arm, bound)
        self._renew()

    def finish(self, arm: int, quality: float) -> None:
        """The quality of an arm is known."""
        self._take_in(arm, quality)
        self._renew()

    def set_costs(self, costs: Vector) -> None:
        """Take over other estimates of all costs, or another scale."""
        check_costs(costs)
        self.costs = costs
        self._renew()

    def restore(self, plays: Iterable[Play]) -> None:
        """Take in plays of the past, in the order in which they were begun, without deciding anything again."""
        for play in plays:
            self._count(play.arm, play.bound)
            if play.quality is not None:
                self._take_in(play.arm, play.quality)
        self._renew()

    def _count(self, arm: int, bound: float) -> None:
        self.least_bound = min(self.least_bound, bound)
        self.t += 1
        self.pending.append(arm)
        self.offered[arm] = self.allow_replays

    def _take_in(self, arm: int, quality: float) -> None:
        self.pending.remove(arm)
        self.sig = self.least_bound - quality
        self.best = max(self.best, quality)
        self.qualities[arm] = quality
        self.posterior.observe(arm, quality)


def beliefs(player: Player) -> Mapping[str, Vector]:
    """Mean, deviation, bound and cost of all arms, each (K,)."""
    return {
        "mean": player.posterior.mean,
        "deviation": np.sqrt(player.variance),
        "bound": player.bounds,
        "cost": player.costs,
    }
