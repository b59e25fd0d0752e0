"""Which arm of a run opens next: the offered arm with the largest score, the lowest number at a tie.

A robust belief has several experts; a rule of EXPERT_RULES asks each of them, and returns a row of scores for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from easeml_db.decisions.bandits.acquisition import (
    expected_improvement,
    improvement_bound,
    probability_of_improvement,
)
from easeml_db.decisions.bandits.prior import Matrix, Vector
from easeml_db.decisions.tenancy.run_bandit import RunBandit

NEAR = 0.3  # of an expert's largest bound; from a best of 0.2 on, no bound is more than three times the improvement
# Scores of all arms, (K,), minus infinity where an arm is not offered; or (E, K), anything where it is not.
ArmRule = Callable[[RunBandit], NDArray[np.float64]]


def by_bound(bandit: RunBandit) -> Vector:
    """Score by GP-UCB, the largest upper bound (cost-aware as the bandit's bounds are)."""
    return bandit.bounds


def by_improvement(bandit: RunBandit) -> Vector:
    """Score by expected improvement."""
    scores = expected_improvement(bandit.posterior.mean, bandit.variance, bandit.best, bandit.prior.link)
    return np.where(bandit.offered, scores, -np.inf)


def by_improvement_rate(bandit: RunBandit) -> Vector:
    """Score by expected improvement per unit of cost."""
    return by_improvement(bandit) / bandit.costs


def by_experts(bandit: RunBandit) -> Matrix:
    """Score by expected improvement per unit of cost, under each expert.

    An arm that every expert knows to be far below its best, by a bound that is cheap, scores 0: integrals are most of
    what a decision takes.
    """
    experts, link = bandit.experts, bandit.prior.link
    means, variances = np.array([expert.mean for expert in experts]), np.array(bandit.expert_variances)
    bounds = np.where(bandit.offered, improvement_bound(means, variances, bandit.best, link) / bandit.costs, 0.0)
    # Where nothing is known yet, everything gains, and the bound says little.
    near = (bounds >= NEAR * (bandit.best > 0) * bounds.max(axis=1, keepdims=True)).any(axis=0)
    improvements = expected_improvement(means[:, near].ravel(), variances[:, near].ravel(), bandit.best, link)
    rates: Matrix = np.zeros_like(means)
    rates[:, near] = improvements.reshape(len(experts), -1) / bandit.costs[near]
    return rates


def by_probability(bandit: RunBandit) -> Vector:
    """Score by the probability of improvement."""
    scores = probability_of_improvement(bandit.posterior.mean, bandit.variance, bandit.best, bandit.prior.link)
    return np.where(bandit.offered, scores, -np.inf)


def in_order(order: Sequence[int]) -> ArmRule:
    """Return a rule that keeps a fixed order of all arms, whatever is observed."""
    rank = np.empty(len(order))
    rank[np.asarray(order, dtype=int)] = np.arange(len(order))

    def scores(bandit: RunBandit) -> Vector:
        return np.where(bandit.offered, -rank, -np.inf)

    return scores


ARM_RULES: Mapping[str, ArmRule] = MappingProxyType(
    {
        "ucb": by_bound, "ei": by_improvement, "ei_rate": by_improvement_rate, "pi": by_probability,
        "robust_ei_rate": by_experts,
    }
)  # fmt: skip
EXPERT_RULES: frozenset[ArmRule] = frozenset({by_experts})
