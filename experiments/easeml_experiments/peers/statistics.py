"""Paired comparison of errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """Mean of n paired differences with its 95 % interval (Student's t); p-value of the paired t test."""

    mean: float
    low: float
    high: float
    p_value: float
    n_pairs: int

    @property
    def holds_zero(self) -> bool:
        """Whether the two sides are indistinguishable."""
        return self.low <= 0 <= self.high

    @property
    def text(self) -> str:
        """In words."""
        interval = f"95 % interval {self.low:+.4f} to {self.high:+.4f}"
        return f"{self.n_pairs} pairs, {interval}, p {self.p_value:.2g}"


def paired_difference(pairs: Sequence[tuple[float, float]]) -> Difference:
    """Return the mean of first less second over the pairs; where all differ equally the interval is a point."""
    from scipy.stats import t

    differences = [first - second for first, second in pairs]
    mean, n = fmean(differences), len(differences)
    error = stdev(differences) / math.sqrt(n) if n > 1 else 0.0
    if error == 0.0:
        return Difference(mean, mean, mean, 1.0 if mean == 0.0 else 0.0, n)
    half = float(t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    return Difference(mean, mean - half, mean + half, float(2 * t.sf(abs(mean) / error, n - 1)), n)
