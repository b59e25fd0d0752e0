"""The exact posterior of a normal belief over finitely many arms, updated in place at each observation.

    symbol     meaning                                          shape
    V          rows of L^-1 S[a, :], L the Cholesky factor of   (t, K)
               S[a, a] + s2 I over the arms a played so far
    mean       m + S[:, a] (S[a, a] + s2 I)^-1 (y - m[a])       (K,)
    variance   diag S - squares of V summed over its rows       (K,)
    surprise   sum of squared standardised innovations,         scalar
               (y - m[a])' (S[a, a] + s2 I)^-1 (y - m[a])

With nu degrees of freedom (Student t process: Shah, Wilson and Ghahramani 2014) the variance is multiplied by
(nu + surprise) / (nu + t); the mean is the same. The evidence is the density of the observations before they were
made: of y under t(m[a], S[a, a] + s2 I) with nu degrees of freedom.

An observation adds one row to V at O(t K); nothing is ever refitted. Only rows of observed arms are kept, so that a
tenant takes O(t K) numbers and all tenants share one S (ease.ml, section 3.2; Desautels et al. 2014 for `pending`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from easeml_db.decisions.bandits.prior import Vector

_ROWS_AT_ONCE = 8


class Process(Protocol):
    """A normal or Student t process over K arms, as `prior.Prior` is one."""

    @property
    def mean(self) -> Vector:
        """Means of the arms, shape (K,)."""

    @property
    def variances(self) -> Vector:
        """Variances of the arms, shape (K,)."""

    @property
    def noise_variance(self) -> float:
        """Variance of the noise of an observation."""

    @property
    def link(self) -> str:
        """Scale of the belief."""

    @property
    def degrees_of_freedom(self) -> float:
        """nu; infinite for a normal process."""

    def covariances(self, arm: int) -> Vector:
        """Return the covariances of an arm with all arms, shape (K,)."""

    def latent(self, quality: float) -> float:
        """Return a quality on the scale of the belief."""


class Posterior:
    """Belief about one tenant's arms; observations enter on the scale of the prior's link."""

    def __init__(self, prior: Process) -> None:
        self.prior = prior
        self.mean: Vector = prior.mean.copy()
        self.n_observed = 0
        self.surprise = 0.0
        self._log_determinant = 0.0  # of S[a, a] + s2 I
        self._variance: Vector = prior.variances.copy()  # before the scale
        self._rows = np.empty((0, len(prior.mean)))

    @property
    def scale(self) -> float:
        """The factor of all variances that surprise brings: 1 for a normal belief."""
        nu = self.prior.degrees_of_freedom
        return 1.0 if math.isinf(nu) else (nu + self.surprise) / (nu + self.n_observed)

    @property
    def variance(self) -> Vector:
        """Variances of the arms, shape (K,)."""
        variance: Vector = self._variance * self.scale
        return variance

    @property
    def log_evidence(self) -> float:
        """The logarithm of the density of all observations; 0 before the first."""
        nu, t = self.prior.degrees_of_freedom, self.n_observed
        if math.isinf(nu):
            return -0.5 * (t * math.log(2 * math.pi) + self._log_determinant + self.surprise)
        constant = math.lgamma((nu + t) / 2) - math.lgamma(nu / 2) - t / 2 * math.log(nu * math.pi)
        return constant - 0.5 * self._log_determinant - 0.5 * (nu + t) * math.log1p(self.surprise / nu)

    def observe(self, arm: int, quality: float) -> None:
        """Record the quality of a play; an arm may be observed again."""
        row = self._row_of(arm, self._rows[: self.n_observed])
        # The variance before the scale: surprise counts in units of the prior's covariance, and the mean does not
        # depend on the scale.
        deviation = math.sqrt(self._variance[arm] + self.prior.noise_variance)  # of the observation
        innovation = (self.prior.latent(quality) - float(self.mean[arm])) / deviation
        self.mean += row * innovation
        self.surprise += innovation * innovation
        self._log_determinant += 2 * math.log(deviation)
        self._variance = np.maximum(self._variance - row * row, 0.0)
        self._keep(row)

    def variance_with(self, pending: Sequence[int]) -> Vector:
        """Return variances as if pending arms had been observed at their present means, which leaves the means as they
        are (hallucinated feedback: GP-BUCB, section 3.2), shape (K,). The scale stays: an observation that is only
        assumed neither adds to the surprise nor lowers it.
        """
        if not pending:
            return self.variance
        rows, variance = self._rows[: self.n_observed], self._variance
        *before, last = pending
        for arm in before:
            row = self._row_of(arm, rows)
            rows, variance = np.vstack([rows, row]), variance - row * row
        row = self._row_of(last, rows)  # nothing follows that would need its row
        variance = variance - row * row
        shrunk: Vector = np.maximum(variance, 0.0) * self.scale
        return shrunk

    def _row_of(self, arm: int, rows: np.ndarray) -> Vector:
        """Return the row of V that an observation of this arm adds below these."""
        covariance: Vector = self.prior.covariances(arm) - rows[:, arm] @ rows
        # The divisor is the new diagonal entry of L. Rounding may leave the variance of a well-known arm just below 0.
        row: Vector = covariance / math.sqrt(max(covariance[arm], 0.0) + self.prior.noise_variance)
        return row

    def _keep(self, row: Vector) -> None:
        if self.n_observed == len(self._rows):
            # Growing by a share of the size keeps all copying linear in t; a quarter leaves little memory unused.
            more = np.empty((max(_ROWS_AT_ONCE, self.n_observed // 4), len(row)))
            self._rows = np.concatenate([self._rows, more])
        self._rows[self.n_observed] = row
        self.n_observed += 1
