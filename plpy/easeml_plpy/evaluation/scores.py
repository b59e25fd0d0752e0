"""A score: a measure of answers that is computed over all rows of a split at once, unlike the metrics of runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Score(Generic[T]):
    """`compute` returns NaN if the score is not defined; `is_higher_better` is None for a mere fact."""

    name: str
    is_higher_better: bool | None
    summary: str
    compute: Callable[[T], float]


def score_values(scores: Iterable[Score[T]], answers: T) -> dict[str, float]:
    """Return all scores by name. Undefined scores are NaN, so scikit-learn's warnings about them are not needed."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {score.name: float(score.compute(answers)) for score in scores}


def or_null(value: float) -> float | str | None:
    """Return a number as JSON holds it: None for NaN, infinity in the words that SQL reads."""
    if math.isnan(value):
        return None
    return float(value) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
