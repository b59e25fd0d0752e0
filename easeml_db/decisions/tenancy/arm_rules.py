"""Which arm a tenant plays: the offered arm with the largest score, the lowest number at a tie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from easeml_db.decisions.bandits.acquisition import expected_improvement, probability_of_improvement
from easeml_db.decisions.bandits.prior import Vector
from easeml_db.decisions.tenancy.player import Player

ArmRule = Callable[[Player], Vector]  # scores of all arms, (K,); minus infinity where an arm is not offered


def by_bound(player: Player) -> Vector:
    """GP-UCB: the largest upper bound (cost-aware as the player's bounds are)."""
    return player.bounds


def by_improvement(player: Player) -> Vector:
    """The largest expected improvement."""
    posterior = player.posterior
    scores = expected_improvement(posterior.mean, player.variance, player.best, posterior.prior.link)
    return np.where(player.offered, scores, -np.inf)


def by_improvement_rate(player: Player) -> Vector:
    """The largest expected improvement per unit of cost."""
    return by_improvement(player) / player.costs


def by_probability(player: Player) -> Vector:
    """The largest probability of improvement."""
    posterior = player.posterior
    scores = probability_of_improvement(posterior.mean, player.variance, player.best, posterior.prior.link)
    return np.where(player.offered, scores, -np.inf)


def in_order(order: Sequence[int]) -> ArmRule:
    """A fixed order of all arms, whatever is observed."""
    rank = np.empty(len(order))
    rank[np.asarray(order, dtype=int)] = np.arange(len(order))

    def scores(player: Player) -> Vector:
        return np.where(player.offered, -rank, -np.inf)

    return scores


ARM_RULES: Mapping[str, ArmRule] = MappingProxyType(
    {"ucb": by_bound, "ei": by_improvement, "ei_rate": by_improvement_rate, "pi": by_probability}
)
