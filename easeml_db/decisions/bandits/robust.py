"""A robust belief: the history's beside two that trust it less, weighted by how well they foretold the run's results.

A history misleads where tenants of another kind arrive: models rank differently, or every quality is elsewhere. A prior
that is a mixture recovers from that (the robust meta-analytic-predictive prior of Schmidli et al., Biometrics 2014):

    symbol   meaning                                                                                  shape
    m, S     mean and covariance of the prior that the history made                                   (K,), (K, K)
    m0, d    mean over the arms of m; d = m - m0, how the history ranks the arms                      scalar, (K,)
    a_e      weight of an expert before the run's first result                                        (E,)
    p_e(y)   evidence: density that the expert had given to the run's results y                       (E,)
    w_e      weight now: proportional to a_e p_e(y)                                                   (E,)

    expert    mean   covariance                                            a_e   says
    history   m      S                                                     .90   this run is like the past ones
    ranking   m0     S + d d'                                              .05   arms vary together as they did, and are
                                                                                 ranked by l d, l ~ N(0, 1)
    vague     m0     d d' + mean(S) 11' + (mean(d^2) + mean(diag S)) I     .05   only the size of differences is known

All experts have the link, noise and degrees of freedom of the prior, so that a stored prior says all of this. A run
without a history has nothing that could mislead it, and one expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from easeml_db.decisions.bandits.posterior import Posterior, Process
from easeml_db.decisions.bandits.prior import Matrix, Prior, Vector

EXPERTS = ("history", "ranking", "vague")
WEIGHTS = (0.9, 0.05, 0.05)


@dataclass(frozen=True, eq=False)
class Variant:
    """A process made from the history's: covariance `history_share` S + d d' + common 11' + own I. No (K, K) matrix of
    its own: thousands of runs have one.
    """

    history: Prior
    mean: Vector
    direction: Vector  # d
    history_share: float = 1.0
    common: float = 0.0
    own: float = 0.0

    @property
    def variances(self) -> Vector:
        """Variances of the arms, shape (K,)."""
        spread = self.direction**2 + self.common + self.own
        variances: Vector = spread + self.history_share * self.history.variances
        return variances

    def covariances(self, arm: int) -> Vector:
        """Return the covariances of an arm with all arms, shape (K,)."""
        row: Vector = self.direction * self.direction[arm] + self.common
        row[arm] += self.own
        return row if self.history_share == 0.0 else row + self.history_share * self.history.covariances(arm)

    @property
    def noise_variance(self) -> float:
        """That of the history's prior."""
        return self.history.noise_variance

    @property
    def link(self) -> str:
        """That of the history's prior."""
        return self.history.link

    @property
    def degrees_of_freedom(self) -> float:
        """Those of the history's prior."""
        return self.history.degrees_of_freedom

    def latent(self, quality: float) -> float:
        """Return a quality on the scale of the belief."""
        return self.history.latent(quality)


def experts_of(prior: Prior) -> tuple[Process, ...]:
    """Return the processes that a prior stands for; the prior comes first."""
    if prior.name == "independent":
        return (prior,)
    centre = float(prior.mean.mean())
    direction, middle = prior.mean - centre, np.full_like(prior.mean, centre)
    own = float((direction**2).mean() + prior.variances.mean())
    # A mean covariance below zero would make this one no covariance.
    common = max(float(prior.covariance.mean()), 0.0)
    vague = Variant(prior, middle, direction, history_share=0.0, common=common, own=own)
    return prior, Variant(prior, middle, direction), vague


class RobustPosterior:
    """The experts' posteriors about one run's arms. Its own mean and variance are those of the mixture, by the weights
    that the run's results give; `log_evidence` (E,) are the logarithms of p_e(y).
    """

    def __init__(self, prior: Prior) -> None:
        self.experts = tuple(Posterior(process) for process in experts_of(prior))
        self._weigh()

    @property
    def mean(self) -> Vector:
        """Means of the mixture, shape (K,)."""
        mean: Vector = self.weights @ np.array([expert.mean for expert in self.experts])
        return mean

    def observe(self, arm: int, quality: float) -> None:
        """Record the quality of a play, for all experts."""
        for expert in self.experts:
            expert.observe(arm, quality)
        self._weigh()

    def mixed(self, variances: Sequence[Vector]) -> Vector:
        """Return the variance of the mixture from those of the experts: their mean, plus the variance of the means, as
        experts may disagree.
        """
        means = np.array([expert.mean for expert in self.experts])
        mixed: Vector = self.weights @ (np.array(variances) + (means - self.weights @ means) ** 2)
        return mixed

    def _weigh(self) -> None:
        self.log_evidence: Vector = np.array([expert.log_evidence for expert in self.experts])
        self.weights = weighted(np.array(WEIGHTS[: len(self.experts)]), self.log_evidence)


def weighted(weights: Vector, log_evidence: Matrix) -> Matrix:
    """Return weights times evidence, of sum 1; both are (E,), or (E, n) for n runs."""
    # Only ratios count, and a density of many results may be far outside of what a float can hold.
    found = weights * np.exp(log_evidence - log_evidence.max(axis=0))
    shares: Matrix = found / found.sum(axis=0)
    return shares
