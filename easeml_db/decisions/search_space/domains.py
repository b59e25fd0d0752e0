"""Values that one hyperparameter may take in a run: choices (a fixed value is one choice) or a range of numbers.

All three answer alike: `n_values` (None when uncountable), `draw(rng)`, `values()` and `grid_values()`
(None where a range needs `n_points` for a grid).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from easeml_db.decisions.search_space.specs import Value, ValueKey, value_key


@dataclass(frozen=True)
class Choices:
    """One of several values, each as likely as the others."""

    options: tuple[Value, ...]

    @cached_property
    def positions(self) -> Mapping[ValueKey, int]:
        """The place of each option, by its key."""
        return {value_key(option): place for place, option in enumerate(self.options)}

    @cached_property
    def ordered(self) -> tuple[float, ...]:
        """All options from the smallest to the largest, or nothing where one is no number."""
        numbers = [
            option for option in self.options if isinstance(option, int | float) and not isinstance(option, bool)
        ]
        return tuple(sorted(numbers)) if len(numbers) == len(self.options) else ()

    @property
    def n_values(self) -> int:
        return len(self.options)

    @property
    def n_grid_values(self) -> int:
        return len(self.options)

    def draw(self, rng: np.random.Generator) -> Value:
        # numpy draws nothing for a single option, either, but takes longer.
        return self.options[int(rng.integers(len(self.options)))] if len(self.options) > 1 else self.options[0]

    def values(self) -> Sequence[Value]:
        return self.options

    def grid_values(self) -> Sequence[Value]:
        return self.options


@dataclass(frozen=True)
class FloatRange:
    """A number from low to high, both included; `log`: its logarithm is uniform."""

    low: float
    high: float
    log: bool = False
    n_points: int | None = None

    @property
    def n_values(self) -> int | None:
        return 1 if self.low == self.high else None

    @property
    def n_grid_values(self) -> int | None:
        return None if self.n_points is None and self.low < self.high else len(self.grid_values() or ())

    def draw(self, rng: np.random.Generator) -> Value:
        if not self.log:
            return _clip(float(rng.uniform(self.low, self.high)), self.low, self.high)
        exponent = float(rng.uniform(math.log(self.low), math.log(self.high)))
        return _clip(math.exp(exponent), self.low, self.high)

    def values(self) -> Sequence[Value]:
        return (self.low,)

    def grid_values(self) -> Sequence[Value] | None:
        """Return the points, ends exact, the others rounded to 12 digits so that 0.001 reads 0.001."""
        if self.low == self.high:
            return (self.low,)
        if self.n_points is None:
            return None
        inner = [_clip(float(f"{_point(self, i):.12g}"), self.low, self.high) for i in range(1, self.n_points - 1)]
        return tuple(dict.fromkeys([self.low, *inner, self.high]))


@dataclass(frozen=True)
class IntegerRange:
    """A whole number from low to high, both included; `log`: small ones are as likely as large ones."""

    low: int
    high: int
    log: bool = False
    n_points: int | None = None

    @property
    def n_values(self) -> int:
        return self.high - self.low + 1

    @property
    def n_grid_values(self) -> int:
        return self.n_values if self.n_points is None else len(self.grid_values())

    def draw(self, rng: np.random.Generator) -> Value:
        if not self.log:
            return int(rng.integers(self.low, self.high, endpoint=True))
        exponent = float(rng.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5)))
        return min(max(round(math.exp(exponent)), self.low), self.high)

    def values(self) -> Sequence[Value]:
        return range(self.low, self.high + 1)

    def grid_values(self) -> Sequence[Value]:
        """Return every whole number, or `n_points` of them evenly spread (fewer where they fall together)."""
        if self.n_points is None or self.n_points >= self.n_values:
            return self.values()
        inner = [round(_point(self, i)) for i in range(1, self.n_points - 1)]
        return tuple(dict.fromkeys([self.low, *inner, self.high]))


Domain = Choices | FloatRange | IntegerRange


def _point(span: FloatRange | IntegerRange, number: int) -> float:
    """Return grid point `number` of 0..n_points-1, evenly spread on the range's scale."""
    share = number / ((span.n_points or 2) - 1)
    if span.log:
        return math.exp(math.log(span.low) + share * (math.log(span.high) - math.log(span.low)))
    return span.low + share * (span.high - span.low)


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
