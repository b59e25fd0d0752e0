"""Which arm of a run opens next: the offered arm with the largest score, the lowest number at a tie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from easeml_db.decisions.bandits.acquisition import expected_improvement, probability_of_improvement
from easeml_db.decisions.bandits.prior import Vector
from easeml_db.decisions.tenancy.run_bandit import RunBandit

ArmRule = Callable[[RunBandit], Vector]  # scores of all arms, (K,); minus infinity where an arm is not offered


def by_bound(bandit: RunBandit) -> Vector:
    """Score by GP-UCB, the largest upper bound (cost-aware as the bandit's bounds are)."""
    return bandit.bounds


def by_improvement(bandit: RunBandit) -> Vector:
    """Score by expected improvement."""
    posterior = bandit.posterior
    scores = expected_improvement(posterior.mean, bandit.variance, bandit.best, posterior.prior.link)
    return np.where(bandit.offered, scores, -np.inf)


def by_improvement_rate(bandit: RunBandit) -> Vector:
    """Score by expected improvement per unit of cost."""
    return by_improvement(bandit) / bandit.costs


def by_probability(bandit: RunBandit) -> Vector:
    """Score by the probability of improvement."""
    posterior = bandit.posterior
    scores = probability_of_improvement(posterior.mean, bandit.variance, bandit.best, posterior.prior.link)
    return np.where(bandit.offered, scores, -np.inf)


def in_order(order: Sequence[int]) -> ArmRule:
    """Return a rule that keeps a fixed order of all arms, whatever is observed."""
    rank = np.empty(len(order))
    rank[np.asarray(order, dtype=int)] = np.arange(len(order))

    def scores(bandit: RunBandit) -> Vector:
        return np.where(bandit.offered, -rank, -np.inf)

    return scores


ARM_RULES: Mapping[str, ArmRule] = MappingProxyType(
    {"ucb": by_bound, "ei": by_improvement, "ei_rate": by_improvement_rate, "pi": by_probability}
)
