"""Scores on the test rows, and how sure they are. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Score:
    """A metric on the test rows with its standard error."""

    value: float
    standard_error: float


def score_of(metric: str, truth: NDArray[Any], predicted: NDArray[Any]) -> Score:
    """Return accuracy or rmse of predictions for some rows, (n,) each.

    The error of an rmse r follows from that of its square, the mean of squared errors: se(r) = se(r^2) / 2r. That of a
    share adds two right and two wrong rows (Agresti and Coull): few rows, all of them right, do not prove a share of 1.
    """
    n_rows = len(truth)
    if metric == "accuracy":
        n_right = int(np.sum(truth == predicted))
        likely = (n_right + 2) / (n_rows + 4)
        return Score(n_right / n_rows, math.sqrt(likely * (1 - likely) / (n_rows + 4)))
    squared = (np.asarray(truth, float) - np.asarray(predicted, float)) ** 2
    value = math.sqrt(float(squared.mean()))
    error = float(squared.std()) / math.sqrt(n_rows)
    return Score(value, error / (2 * value) if value else 0.0)


def is_at_least_as_good(score: Score, other: Score, *, is_higher_better: bool, n_errors: float = 1.0) -> bool:
    """Say whether a score is no worse than another by more than so many of the other's standard errors."""
    behind = other.value - score.value if is_higher_better else score.value - other.value
    return behind <= n_errors * other.standard_error


def ranks(values: Mapping[str, float], *, is_higher_better: bool) -> dict[str, float]:
    """Return each name's rank from 1, best first; equal values share the mean of their ranks."""
    sign = -1 if is_higher_better else 1
    keys = {name: sign * value for name, value in values.items()}
    return {
        name: 1 + sum(other < key for other in keys.values()) + (sum(other == key for other in keys.values()) - 1) / 2
        for name, key in keys.items()
    }


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the mean over seeds of scores, with the mean of their errors: seeds share most of their rows."""
    return Score(fmean(each.value for each in scores), fmean(each.standard_error for each in scores))


def seconds_until(curve: Sequence[tuple[float, float]], goal: float, *, is_higher_better: bool) -> float | None:
    """Return when a curve of (seconds, metric) first reaches a goal, None where it never does."""
    reached = [at for at, value in curve if (value >= goal if is_higher_better else value <= goal)]
    return min(reached, default=None)
