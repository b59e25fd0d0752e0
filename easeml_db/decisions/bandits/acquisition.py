"""Scores of arms under a normal belief: the arm with the largest score is played, the lowest number at a tie.

GP-UCB       mean + sqrt(beta) * deviation, beta = log(K t^2 / delta)                  ease.ml, algorithm 1
cost-aware   mean + sqrt(beta / c) * deviation: only the exploration term sees cost    ease.ml, section 3.3
theorem      beta = 2 c* log(pi^2 n K* t^2 / (6 delta)), c* and K* the largest of all  ease.ml, theorems 1 to 3
EI, EI / c   E[(q - best)^+], on the scale of the quality; per unit of cost            Snoek et al. 2012
PI           P(q > best)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from easeml_db.decisions.bandits.prior import Matrix, Vector, to_latent, to_quality
from easeml_db.errors import InvalidArgument

DELTA = 0.1  # not given in the paper
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_TAIL = 7.0  # deviations beyond which a normal variable is not looked for


@dataclass(frozen=True)
class Theorem:
    """Facts about all tenants for the theorems' beta: their number n, the most arms K*, the largest cost c*."""

    n_tenants: int
    max_arms: int
    max_cost: float


@dataclass(frozen=True)
class ConfidenceBounds:
    """GP-UCB's bounds; `theorem` replaces beta by the one for which the regret bounds are proved."""

    delta: float = DELTA
    is_cost_aware: bool = True
    theorem: Theorem | None = None

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise InvalidArgument(f"delta: expected a number between 0 and 1, got {self.delta}")

    def beta(self, n_arms: int, t: int) -> float:
        """Return the weight of the variance at a tenant's t-th play (t = 1, 2, ...)."""
        if self.theorem is None:
            # t counts this tenant's own plays, not the rounds of all tenants.
            return math.log(n_arms * t * t / self.delta)
        n, k, c = self.theorem.n_tenants, self.theorem.max_arms, self.theorem.max_cost
        return 2 * c * math.log(math.pi**2 * n * k * t * t / (6 * self.delta))

    def bounds(self, mean: Vector, variance: Vector, costs: Vector, beta: float) -> Vector:
        """Return the upper bounds of all arms, shape (K,)."""
        # sqrt(beta / c_k) sd_k as one root. c_k is in units of the mean cost (costs.py): the rule depends on its scale.
        bounds: Vector = mean + np.sqrt(variance * (beta / costs if self.is_cost_aware else beta))
        return bounds


def expected_improvement(mean: Vector, variance: Vector, best: float, link: str = "identity") -> Vector:
    """Return E[(q - best)^+] of each arm, shape (K,); on a logit scale by quadrature."""
    from scipy.special import ndtr  # a third of what a command imports

    deviation = np.sqrt(variance)
    if link != "identity":
        return _improvement_by_quadrature(mean, deviation, best, link)
    gain = mean - best
    # A deviation of 0 makes z huge and ndtr(z) 0 or 1, so that the result is (mean - best)^+.
    z = gain / np.maximum(deviation, 1e-12)
    improvement: Vector = gain * ndtr(z) + deviation * _density(z)
    # Far below the best the two terms cancel, and rounding may leave a sum just below 0.
    return np.maximum(improvement, 0.0)


def improvement_bound(mean: Matrix, variance: Matrix, best: float, link: str) -> Matrix:
    """Return what expected improvements are at most, of any shape: on the logit scale the smaller of two bounds.

    A quality gains at most 1 - best, and above the best it rises no faster than the logistic function at its steepest.
    """
    from scipy.special import logit, ndtr

    deviation = np.maximum(np.sqrt(variance), 1e-12)
    level = best if link == "identity" else float(logit(min(max(best, 1e-12), 1.0 - 1e-12)))
    z = (mean - level) / deviation
    probability = ndtr(z)
    bound: Matrix = np.maximum((mean - level) * probability + deviation * _density(z), 0.0)
    if link == "identity":
        return bound
    steepest = best * (1.0 - best) if best > 0.5 else 0.25
    smaller: Matrix = np.minimum(steepest * bound, (1.0 - best) * probability)
    return smaller


def _improvement_by_quadrature(mean: Vector, deviation: Vector, best: float, link: str) -> Vector:
    """Integrate by Gauss-Legendre from where the quality exceeds the best, so that the kink there does no harm."""
    from scipy.special import logit

    # Not `to_latent`, which clips at 0.995: the gains below count from the unclipped best. Only 0 and 1 have no logit.
    level = float(logit(min(max(best, 1e-12), 1.0 - 1e-12)))
    low = np.maximum((level - mean) / np.maximum(deviation, 1e-12), -_TAIL)
    # The upper end is 7 deviations above the mean, or above `low` where that is higher: the interval is never empty.
    # Legendre nodes lie in [-1, 1]; `half` maps them to it, and is also the factor of the integral.
    half = (np.maximum(low, 0.0) + _TAIL - low) / 2
    z = low[:, None] + half[:, None] * (1.0 + _NODES)
    gains = np.maximum(to_quality(mean[:, None] + deviation[:, None] * z, link) - best, 0.0)
    improvement: Vector = half * ((gains * _density(z)) @ _WEIGHTS)
    return improvement


def _density(z: np.ndarray) -> np.ndarray:
    density: np.ndarray = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)  # of the standard normal distribution
    return density


def probability_of_improvement(mean: Vector, variance: Vector, best: float, link: str = "identity") -> Vector:
    """Return P(q > best) of each arm, shape (K,)."""
    from scipy.special import ndtr

    threshold = float(to_latent(np.asarray(best), link))
    probability: Vector = ndtr((mean - threshold) / np.maximum(np.sqrt(variance), 1e-12))
    return probability
