"""Metrics of predictions, and the additive statistics of one partition from which they are computed.

A partition is measured where it lies; only its statistics travel. Statistics are plain JSON: a number that is
not finite (a diverged trial) is stored as null, absorbs what it is combined with, and makes its metric NaN.
Targets and outputs of a regression arrive in the target's own units.

Rules: a row whose outputs are not all finite is counted as wrong and predicts no class. Averages over classes
leave out classes without rows (balanced_accuracy), or without rows and without predictions (macro_f1).
With no rows every metric is NaN; r2 needs two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

import numpy as np

from easeml_plpy.columns.task import Task, TaskKind
from easeml_plpy.metrics.classification_metrics import (
    ClassificationStatistics,
    classification_values,
    combine_classification,
    measure_classification,
)
from easeml_plpy.metrics.tensor_metrics import TensorStatistics, combine_tensors, measure_tensors, tensor_values
from easeml_plpy.server.errors import InvalidArgument, InvalidData, NotFound, ShapeMismatch, close_matches_hint
from easeml_plpy.server.missing_numbers import finite, number, total
from easeml_plpy.server.value_types import Array


class RegressionStatistics(TypedDict):
    """Sums over rows; the spread of targets is kept around their mean."""

    kind: Literal["regression"]
    n_rows: int
    squared_error_sum: float | None
    absolute_error_sum: float | None
    target_mean: float
    target_squared_deviation_sum: float


Statistics: TypeAlias = ClassificationStatistics | RegressionStatistics | TensorStatistics
MetricTask: TypeAlias = TaskKind | Literal["tensor"]
"""What a metric measures; tensors that come out have the metrics of numbers, too."""


@dataclass(frozen=True)
class Metric:
    """A measure of predictions that knows its direction."""

    name: str
    task: MetricTask
    is_higher_better: bool
    summary: str


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "classification", True, "share of rows whose most probable class is right"),
        Metric("balanced_accuracy", "classification", True, "mean over classes of the share found"),
        Metric("macro_f1", "classification", True, "mean over classes of the F1 score"),
        Metric("log_loss", "classification", False, "mean negative log probability of the right class"),
        Metric("rmse", "regression", False, "root of the mean squared error, in units of the target"),
        Metric("mae", "regression", False, "mean absolute error, in units of the target"),
        Metric("r2", "regression", True, "share of the target's variance explained"),
        Metric("mse", "tensor", False, "mean squared error over all numbers of the outputs"),
        Metric("psnr", "tensor", True, "peak signal-to-noise ratio in decibels, over the range of the outputs"),
        Metric("ssim", "tensor", True, "structural similarity of pictures, 1 at best"),
        Metric("token_accuracy", "tensor", True, "share of steps whose greatest number is the right one"),
    )
}

DEFAULT_METRIC: dict[TaskKind, str] = {"classification": "accuracy", "regression": "rmse"}
LOSS: dict[MetricTask, str] = {"classification": "log_loss", "regression": "rmse", "tensor": "rmse"}


def metric(name: str) -> Metric:
    """Return the metric of that name. Raises NotFound."""
    if name not in METRICS:
        raise NotFound(f"there is no metric {name!r}", hint=close_matches_hint(name, METRICS))
    return METRICS[name]


Score: TypeAlias = tuple[float, float]
"""The metric, then what breaks a tie: the loss. Higher is better in both; few rows make many equal accuracies."""
WORST: Score = (-math.inf, -math.inf)


def score_of(metric: Metric, measured: Mapping[str, float]) -> Score:
    """Return the score of a split's metrics; a metric that is missing or not finite scores worst."""
    loss = measured.get(LOSS[metric.task])
    return _score(metric, measured.get(metric.name), loss)


def is_better(metric: Metric, measured: Mapping[str, float], value: float | None, loss: float | None) -> bool:
    """Return whether the metrics of an epoch beat the value and the loss of an earlier one. A tie keeps the old."""
    return score_of(metric, measured) > _score(metric, value, loss)


def _score(metric: Metric, value: float | None, loss: float | None) -> Score:
    sign = 1.0 if metric.is_higher_better else -1.0
    return _finite_or_worst(value, sign), _finite_or_worst(loss, -1.0)


def _finite_or_worst(value: float | None, sign: float) -> float:
    return -math.inf if value is None or not math.isfinite(value) else sign * value


def measure(task: Task, outputs: Array, targets: Array) -> Statistics:
    """Return statistics of outputs, shape (n, n_outputs), against targets, shape (n,), or (n, n_outputs) of tensors.

    Classification outputs are probabilities. Raises ShapeMismatch, InvalidData.
    """
    if task.output_shape and outputs.shape == targets.shape == (len(targets), task.n_outputs):
        return measure_tensors(task, outputs, targets)
    if outputs.shape != (len(targets), task.n_outputs) or targets.ndim != 1:
        raise ShapeMismatch(
            f"expected outputs of shape {(len(targets), task.n_outputs)} and flat targets, "
            f"got {outputs.shape} and {targets.shape}"
        )
    if task.kind == "classification":
        return measure_classification(outputs, targets)
    return _measure_regression(outputs, targets)


def combine(parts: Sequence[Statistics]) -> Statistics:
    """Return statistics of all rows from those of parts, in any order. Raises InvalidArgument."""
    if not parts:
        raise InvalidArgument("there are no statistics to combine")
    kinds = sorted({part["kind"] for part in parts})
    if len(kinds) > 1:
        raise InvalidArgument(f"cannot combine statistics of different kinds: {', '.join(kinds)}")
    if tensors := [part for part in parts if part["kind"] == "tensor"]:
        return combine_tensors(tensors)
    if classifications := [part for part in parts if part["kind"] == "classification"]:
        return combine_classification(classifications)
    return _combine_regression([part for part in parts if part["kind"] == "regression"])


def values(task: Task, statistics: Statistics) -> dict[str, float]:
    """Return every metric of the task by name, NaN where it is not defined."""
    expected = "tensor" if task.output_shape else task.kind
    if statistics["kind"] != expected:
        raise InvalidArgument(f"expected statistics of a {expected}, got {statistics['kind']}")
    if statistics["n_rows"] == 0:
        return {name: math.nan for name, metric in METRICS.items() if metric.task in (task.kind, expected)}
    if statistics["kind"] == "tensor":
        return tensor_values(task, statistics)
    if statistics["kind"] == "classification":
        return classification_values(statistics)
    return _regression_values(statistics)


def mean_over_folds(task: Task, folds: Sequence[Statistics]) -> dict[str, tuple[float, float]]:
    """Return of every metric of the task its mean over folds, and the standard error of that mean."""
    by_fold = [values(task, statistics) for statistics in folds]
    found = {}
    for name in by_fold[0]:
        column = np.array([each[name] for each in by_fold])
        found[name] = float(column.mean()), float(column.std(ddof=1)) / math.sqrt(len(column))
    return found


def classes_seen(statistics: Statistics) -> int | None:
    """Return how many classes have rows in the statistics; None for numbers."""
    if statistics["kind"] != "classification":
        return None
    by_class = zip(statistics["true_positives"], statistics["false_negatives"], strict=True)
    return sum(found + missed > 0 for found, missed in by_class)


# Regression


def _measure_regression(outputs: Array, targets: Array) -> RegressionStatistics:
    """Sum in float64; the spread is taken around the mean of the targets, so large offsets cost nothing."""
    if not np.isfinite(targets).all():
        raise InvalidData("a target is not finite")
    exact = targets.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        errors = outputs[:, 0].astype(np.float64) - exact
        squared_error_sum = float(np.square(errors).sum())
    target_mean = float(exact.mean()) if len(exact) else 0.0
    return {
        "kind": "regression",
        "n_rows": len(exact),
        "squared_error_sum": finite(squared_error_sum),
        "absolute_error_sum": finite(float(np.abs(errors).sum())),
        "target_mean": target_mean,
        "target_squared_deviation_sum": float(np.square(exact - target_mean).sum()),
    }


def _combine_regression(parts: Sequence[RegressionStatistics]) -> RegressionStatistics:
    """Combine means and squared deviations as in Chan, Golub and LeVeque (1979), over all parts at once."""
    n_rows = sum(part["n_rows"] for part in parts)
    mean = math.fsum(part["n_rows"] * part["target_mean"] for part in parts) / max(n_rows, 1)
    within = math.fsum(part["target_squared_deviation_sum"] for part in parts)
    between = math.fsum(part["n_rows"] * (part["target_mean"] - mean) ** 2 for part in parts)
    return {
        "kind": "regression",
        "n_rows": n_rows,
        "squared_error_sum": total(part["squared_error_sum"] for part in parts),
        "absolute_error_sum": total(part["absolute_error_sum"] for part in parts),
        "target_mean": mean,
        "target_squared_deviation_sum": within + between,
    }


def _regression_values(statistics: RegressionStatistics) -> dict[str, float]:
    n_rows = statistics["n_rows"]
    squared_error_sum = number(statistics["squared_error_sum"])
    return {
        "rmse": math.sqrt(squared_error_sum / n_rows),
        "mae": number(statistics["absolute_error_sum"]) / n_rows,
        "r2": _r2(n_rows, squared_error_sum, statistics["target_squared_deviation_sum"]),
    }


def _r2(n_rows: int, squared_error_sum: float, squared_deviation_sum: float) -> float:
    """Return r2: NaN below two rows; for constant targets 1 if every prediction is exact, else 0 (as scikit-learn)."""
    if n_rows < 2 or math.isnan(squared_error_sum):
        return math.nan
    if squared_deviation_sum == 0:
        return 1.0 if squared_error_sum == 0 else 0.0
    return 1 - squared_error_sum / squared_deviation_sum
