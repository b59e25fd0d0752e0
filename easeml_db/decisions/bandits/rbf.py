"""ease.ml's prior: arm k is the vector x_k of its qualities on past tenants; near arms have like qualities.

    covariance   A exp(-|x_k - x_l|^2 / (2 l^2)), |x|^2 divided by the number of past tenants
    mean         the grand mean of past qualities, the same for all arms
    A, l, s2     maximise the sum over past tenants u of log N(y_u; mean, covariance + s2 I)

The length l is searched on a grid and then between its best neighbours. For each l one eigendecomposition serves all
A and s2: with r = s2 / A the best A has a closed form, and r is searched as l is (ease.ml, appendix A; the paper does
not say which data its likelihood uses, nor how distances are scaled).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from easeml_db.decisions.bandits.history import filled
from easeml_db.decisions.bandits.prior import Matrix, Prior, Vector

_LENGTHS = np.geomspace(0.03, 10.0, 12)  # times the median distance
_RATIOS = np.geomspace(1e-6, 10.0, 15)
_LEAST_VARIANCE = 1e-8


@dataclass(frozen=True)
class _Fit:
    log_likelihood: float
    amplitude: float
    noise_variance: float


def rbf_prior(qualities: Matrix) -> Prior:
    """Make the prior from past qualities, shape (n, K), nan where an arm was not offered; n >= 1."""
    history = filled(qualities)
    squares = _squared_distances(history)
    mean = float(history.mean())
    residuals = history - mean
    scale = float(np.sqrt(np.median(squares[~np.eye(len(squares), dtype=bool)]))) if len(squares) > 1 else 1.0
    # Past tenants may have found all arms equal.
    scale = max(scale, 1e-6)
    length = scale * _argmax(lambda times: _fit(times * scale, squares, residuals).log_likelihood, _LENGTHS)
    fit = _fit(length, squares, residuals)
    covariance = fit.amplitude * np.exp(-squares / (2 * length**2))
    fitted = {"amplitude": fit.amplitude, "length": length, "noise_variance": fit.noise_variance, "mean": mean}
    return Prior(np.full(len(squares), mean), covariance, fit.noise_variance, name="rbf", fitted=fitted)


def _squared_distances(history: Matrix) -> Matrix:
    """Return the mean squared difference of each two columns, shape (K, K)."""
    squares = (history**2).mean(axis=0)
    # |x|^2 + |y|^2 - 2 x y of two equal arms may round to just below 0.
    distances: Matrix = np.maximum(squares[:, None] + squares[None, :] - 2 * history.T @ history / len(history), 0.0)
    return distances


def _argmax(value: Callable[[float], float], grid: Vector) -> float:
    """Find the point with the largest value: the best of a grid, then between its neighbours on a logarithmic scale."""
    from scipy.optimize import minimize_scalar  # it takes long to import

    values = [value(float(point)) for point in grid]
    best = int(np.argmax(values))
    # The search finds one maximum, and there may be several: the grid says between which points to look.
    bounds = np.log(grid[[max(best - 1, 0), min(best + 1, len(grid) - 1)]])
    result = minimize_scalar(
        lambda log: -value(float(np.exp(log))), bounds=bounds, method="bounded", options={"xatol": 0.005}
    )
    # The search never looks at the grid's point itself, which may be better than what it found.
    return float(np.exp(result.x)) if -result.fun > values[best] else float(grid[best])


def _fit(length: float, squares: Matrix, residuals: Matrix) -> _Fit:
    """Return the best amplitude and noise for a length."""
    eigenvalues, vectors = np.linalg.eigh(np.exp(-squares / (2 * length**2)))
    # A Gaussian kernel has no negative eigenvalues: these are rounding.
    eigenvalues = np.maximum(eigenvalues, 0.0)
    power = ((residuals @ vectors) ** 2).sum(axis=0)  # of the residuals along each eigenvector, over all tenants
    n = len(residuals)
    ratio = _argmax(lambda r: _with_ratio(r, eigenvalues, power, n).log_likelihood, _RATIOS)
    return _with_ratio(ratio, eigenvalues, power, n)


def _with_ratio(ratio: float, eigenvalues: Vector, power: Vector, n: int) -> _Fit:
    """Return the best amplitude for noise variance / amplitude = ratio, n past tenants."""
    spread, k = eigenvalues + ratio, len(eigenvalues)
    # The derivative of the likelihood by A is 0 where A = mean of power / (e + r) over all n K values, e an eigenvalue.
    amplitude = max(float((power / spread).sum()) / (n * k), _LEAST_VARIANCE)
    distance = float((power / spread).sum()) / amplitude
    log_likelihood = -0.5 * (n * k * math.log(2 * math.pi * amplitude) + n * float(np.log(spread).sum()) + distance)
    return _Fit(log_likelihood, amplitude, max(amplitude * ratio, _LEAST_VARIANCE))
