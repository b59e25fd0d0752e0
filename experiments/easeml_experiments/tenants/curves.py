"""Losses over cost: mean and worst of the repeats, cost to a loss, time between two, bootstrap over repeats.

symbol   meaning                                            shape
R, L     repeats; losses asked for
curve    falling steps: values[k] holds from costs[k] on    (t,) and (t,)
mean     mean of the repeats' curves; worst: their maximum  (points,)
draws    numbers of repeats, drawn with replacement         (B, R)

The cost to a loss is the first cost where a curve is at most that loss, infinite where it is not reached within the
budget. Intervals hold 95 % of the bootstrap; ratios resample both sides by the same repeats, which share their tenants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from easeml_experiments.tenants.matrices import Floats

LEVELS: Floats = np.round(np.arange(0.2, 0.0049, -0.005), 3)
N_DRAWS, MAX_POINTS, QUANTILES = 1000, 2000, (0.025, 0.975)
_TOLERANCE = 1e-9  # of sums of qualities
_NEVER = np.array([np.inf])


@dataclass(frozen=True, eq=False)
class Curves:
    """A curve for each repeat, known up to the budget; `is_linear`: lines between points instead of steps."""

    costs: Sequence[Floats]
    values: Sequence[Floats]
    budget: float = 1.0
    is_linear: bool = False

    @cached_property
    def points(self) -> Floats:
        """All costs where any curve changes, rising."""
        points = np.unique(np.concatenate(self.costs))
        kept: Floats = points[points <= self.budget + _TOLERANCE]
        return kept

    def at(self, grid: Floats) -> Floats:
        """Return values of all repeats, shape (R, grid)."""
        pairs = zip(self.costs, self.values, strict=True)
        if self.is_linear:
            return np.array([np.interp(grid, cost, value) for cost, value in pairs])
        return np.array([value[np.searchsorted(cost, grid, "right") - 1] for cost, value in pairs])

    def mean(self, grid: Floats) -> Floats:
        """Return the mean over repeats at these costs."""
        mean: Floats = self.at(grid).mean(axis=0)
        return mean

    def worst(self, grid: Floats) -> Floats:
        """Return the largest of all repeats at these costs."""
        worst: Floats = self.at(grid).max(axis=0)
        return worst

    def cost_to(self, levels: Floats, *, worst: bool = False) -> Floats:
        """Return costs to levels of the mean or the worst curve, shape (L,)."""
        curve = self.worst(self.points) if worst else self.mean(self.points)
        costs: Floats = _reached(self.points, curve[None], levels, self.is_linear)[0]
        return costs

    def resampled(self, levels: Floats, draws: NDArray[np.int_], *, worst: bool = False) -> Floats:
        """Return costs to levels in each draw of repeats, shape (B, L)."""
        if worst:
            each = np.concatenate([_reached(c, v[None], levels) for c, v in zip(self.costs, self.values, strict=True)])
            each[each > self.budget + _TOLERANCE] = np.inf
            largest: Floats = each[draws].max(axis=1)
            return largest
        grid = thinned(self.points, MAX_POINTS)
        counts = np.array([np.bincount(draw, minlength=len(self.costs)) for draw in draws])
        means = counts @ self.at(grid) / len(self.costs)
        return _reached(grid, means, levels, self.is_linear)


def _reached(points: Floats, curves: Floats, levels: Floats, is_linear: bool = False) -> Floats:
    """Return the first points, (B, L), where falling curves (B, t) are at most each level; infinite: they never are."""
    costs: Floats = np.concatenate((points, _NEVER))[_first_at_most(curves, levels + _TOLERANCE)]
    if not is_linear:
        return costs
    found = np.array([np.interp(-levels, -curve, points) for curve in curves])
    return np.where(np.isinf(costs), np.inf, np.minimum(costs, found))


def _first_at_most(curves: Floats, levels: Floats) -> NDArray[np.int_]:
    """Return the places, shape (B, L), of the first values that are at most each level; t where none is.

    All curves and levels are bisected together: a thousand draws are a thousand curves.
    """
    n_points = curves.shape[1]
    low = np.zeros((len(curves), len(levels)), dtype=int)
    high = np.full_like(low, n_points)
    for _ in range(n_points.bit_length()):
        middle = (low + high) // 2
        is_reached = np.take_along_axis(curves, np.minimum(middle, n_points - 1), axis=1) <= levels
        high = np.where(is_reached, middle, high)
        low = np.where(is_reached, low, np.minimum(middle + 1, high))
    return high


def draws_of(n_repeats: int, seed: int, n_draws: int = N_DRAWS) -> NDArray[np.int_]:
    """Return repeats drawn with replacement, shape (B, R)."""
    return np.random.default_rng((seed, n_repeats, n_draws)).integers(0, n_repeats, (n_draws, n_repeats))


def thinned(points: Floats, at_most: int) -> Floats:
    """Return some of the points, evenly by their logarithm and the first and last among them."""
    if len(points) <= at_most:
        return points
    low = max(float(points[points > 0][0]), 1e-9)
    wanted = np.geomspace(low, points[-1], at_most - 1)
    places = np.unique(np.minimum(np.searchsorted(points, wanted), len(points) - 1))
    kept: Floats = points[np.union1d([0], places)]
    return kept


def interval(samples: Floats) -> tuple[float, float]:
    """Return the middle 95 % of samples, shape (B,); nan where infinite ones are divided by one another."""
    known = samples[~np.isnan(samples)]
    if not known.size:
        return float("nan"), float("nan")
    low, high = np.quantile(known, QUANTILES, method="nearest")
    return float(low), float(high)


@dataclass(frozen=True)
class Ratio:
    """A ratio of costs, and the middle 95 % of its bootstrap."""

    value: float
    low: float
    high: float


def ratio(above: Curves, below: Curves, level: float, draws: NDArray[np.int_], *, worst: bool = False) -> Ratio:
    """Return the cost to a loss of one strategy divided by that of another."""
    levels = np.array([level])
    samples = [curves.resampled(levels, draws, worst=worst)[:, 0] for curves in (above, below)]
    values = [float(curves.cost_to(levels, worst=worst)[0]) for curves in (above, below)]
    return _ratio(values, samples)


def time_ratio(
    above: Curves, below: Curves, between: tuple[float, float], draws: NDArray[np.int_], *, worst: bool = False
) -> Ratio:
    """Return the time of one strategy between two losses, the higher first, divided by that of another."""
    levels = np.array(between)
    samples = [_difference(curves.resampled(levels, draws, worst=worst)) for curves in (above, below)]
    values = [float(_difference(curves.cost_to(levels, worst=worst)[None])[0]) for curves in (above, below)]
    return _ratio(values, samples)


def ratios(above: Curves, below: Curves, levels: Floats, *, worst: bool = False) -> Floats:
    """Return costs to all levels of one divided by those of another, shape (L,); nan where neither arrives."""
    with np.errstate(invalid="ignore", divide="ignore"):
        quotients: Floats = above.cost_to(levels, worst=worst) / below.cost_to(levels, worst=worst)
    return quotients


def _difference(costs: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        later: Floats = costs[:, 1] - costs[:, 0]
    return later


def _ratio(values: Sequence[float], samples: Sequence[Floats]) -> Ratio:
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(np.divide(values[0], values[1]))
        low, high = interval(np.divide(samples[0], samples[1]))
    return Ratio(value, low, high)
