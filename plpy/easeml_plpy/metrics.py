"""How good predictions are: additive statistics of one partition, and the metrics they make.

A partition is measured where it lies; only its statistics travel. Statistics are plain JSON: a number that is
not finite (a diverged trial) is stored as null, absorbs what it is combined with, and makes its metric NaN.
Targets and outputs of a regression arrive in the target's own units.

Rules: a row whose outputs are not all finite is counted as wrong and predicts no class. Averages over classes
leave out classes without rows (balanced_accuracy), or without rows and without predictions (macro_f1).
With no rows every metric is NaN; r2 needs two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

import numpy as np

from easeml_plpy.errors import InvalidArgument, InvalidData, NotFound, ShapeMismatch, close_matches_hint
from easeml_plpy.task import Task, TaskKind
from easeml_plpy.value_types import Array

SMALLEST_PROBABILITY = float(np.finfo(np.float32).eps)
"""Log loss counts smaller probabilities as this one, so that one wrong certainty is not infinite."""


class ClassificationStatistics(TypedDict):
    """Counts by class, in the order of the classes."""

    kind: Literal["classification"]
    n_rows: int
    n_correct: int
    log_loss_sum: float | None
    true_positives: list[int]
    false_positives: list[int]
    false_negatives: list[int]


class RegressionStatistics(TypedDict):
    """Sums over rows; the spread of targets is kept around their mean."""

    kind: Literal["regression"]
    n_rows: int
    squared_error_sum: float | None
    absolute_error_sum: float | None
    target_mean: float
    target_squared_deviation_sum: float


Statistics: TypeAlias = ClassificationStatistics | RegressionStatistics


@dataclass(frozen=True)
class Metric:
    """A measure of predictions that knows its direction."""

    name: str
    task: TaskKind
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
    )
}

DEFAULT_METRIC: dict[TaskKind, str] = {"classification": "accuracy", "regression": "rmse"}
LOSS: dict[TaskKind, str] = {"classification": "log_loss", "regression": "rmse"}


def metric(name: str) -> Metric:
    """Return the metric of that name. Raises NotFound."""
    if name not in METRICS:
        raise NotFound(f"there is no metric {name!r}", hint=close_matches_hint(name, METRICS))
    return METRICS[name]


Score: TypeAlias = tuple[float, float]
"""The metric, then what breaks a tie: the loss. Higher is better in both; few rows make many equal accuracies."""
WORST: Score = (-math.inf, -math.inf)


def score_of(metric: Metric, measured: Mapping[str, float]) -> Score:
    """Return how good metrics of a split are. What is missing or not finite is worst."""
    loss = measured.get(LOSS[metric.task])
    return _score(metric, measured.get(metric.name), loss)


def is_better(metric: Metric, measured: Mapping[str, float], value: float | None, loss: float | None) -> bool:
    """Say whether the metrics of an epoch beat the value and the loss of an earlier one. A tie keeps the old."""
    return score_of(metric, measured) > _score(metric, value, loss)


def _score(metric: Metric, value: float | None, loss: float | None) -> Score:
    sign = 1.0 if metric.is_higher_better else -1.0
    return _finite_or_worst(value, sign), _finite_or_worst(loss, -1.0)


def _finite_or_worst(value: float | None, sign: float) -> float:
    return -math.inf if value is None or not math.isfinite(value) else sign * value


def measure(task: Task, outputs: Array, targets: Array) -> Statistics:
    """Return statistics of outputs, shape (n, n_outputs), against targets, shape (n,).

    Classification outputs are probabilities. Raises ShapeMismatch, InvalidData.
    """
    if outputs.shape != (len(targets), task.n_outputs) or targets.ndim != 1:
        raise ShapeMismatch(
            f"expected outputs of shape {(len(targets), task.n_outputs)} and flat targets, "
            f"got {outputs.shape} and {targets.shape}"
        )
    if task.kind == "classification":
        return _measure_classification(outputs, targets)
    return _measure_regression(outputs, targets)


def combine(parts: Sequence[Statistics]) -> Statistics:
    """Return statistics of all rows from those of parts, in any order. Raises InvalidArgument."""
    if not parts:
        raise InvalidArgument("there are no statistics to combine")
    classifications = [part for part in parts if part["kind"] == "classification"]
    regressions = [part for part in parts if part["kind"] == "regression"]
    if classifications and regressions:
        raise InvalidArgument("cannot combine statistics of different kinds: classification, regression")
    return _combine_classification(classifications) if classifications else _combine_regression(regressions)


def values(task: Task, statistics: Statistics) -> dict[str, float]:
    """Return every metric of the task by name, NaN where it is not defined."""
    if statistics["kind"] != task.kind:
        raise InvalidArgument(f"expected statistics of a {task.kind}, got {statistics['kind']}")
    if statistics["n_rows"] == 0:
        return {name: math.nan for name, metric in METRICS.items() if metric.task == task.kind}
    if statistics["kind"] == "classification":
        return _classification_values(statistics)
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


# Classification


def _measure_classification(outputs: Array, targets: Array) -> ClassificationStatistics:
    n_rows, n_classes = outputs.shape
    if n_rows and not (targets.min() >= 0 and targets.max() < n_classes):
        raise InvalidData(f"a class lies outside 0 to {n_classes - 1}")
    classes = targets.astype(np.int64, copy=False)
    is_finite = np.isfinite(outputs).all(axis=1)
    predicted = outputs.argmax(axis=1) if n_rows else classes
    is_correct = is_finite & (predicted == classes)
    support = np.bincount(classes, minlength=n_classes)
    true_positives = np.bincount(classes[is_correct], minlength=n_classes)
    predictions = np.bincount(predicted[is_finite], minlength=n_classes)
    return {
        "kind": "classification",
        "n_rows": n_rows,
        "n_correct": int(is_correct.sum()),
        "log_loss_sum": _log_loss_sum(outputs, classes) if is_finite.all() else None,
        "true_positives": true_positives.tolist(),
        "false_positives": (predictions - true_positives).tolist(),
        "false_negatives": (support - true_positives).tolist(),
    }


def _log_loss_sum(outputs: Array, classes: Array) -> float:
    """Return the sum over rows of -log p(right class)."""
    right = outputs[np.arange(len(classes)), classes].astype(np.float64)
    return float(-np.log(right.clip(SMALLEST_PROBABILITY, 1.0)).sum())


def _combine_classification(parts: Sequence[ClassificationStatistics]) -> ClassificationStatistics:
    if len({len(part["true_positives"]) for part in parts}) > 1:
        raise InvalidArgument("cannot combine statistics over different numbers of classes")
    return {
        "kind": "classification",
        "n_rows": sum(part["n_rows"] for part in parts),
        "n_correct": sum(part["n_correct"] for part in parts),
        "log_loss_sum": _total(part["log_loss_sum"] for part in parts),
        "true_positives": _sum_by_class(part["true_positives"] for part in parts),
        "false_positives": _sum_by_class(part["false_positives"] for part in parts),
        "false_negatives": _sum_by_class(part["false_negatives"] for part in parts),
    }


def _sum_by_class(counts: Iterable[list[int]]) -> list[int]:
    return [sum(of_class) for of_class in zip(*counts, strict=True)]


def _classification_values(statistics: ClassificationStatistics) -> dict[str, float]:
    found = np.array(statistics["true_positives"], dtype=np.float64)
    false_positives = np.array(statistics["false_positives"], dtype=np.float64)
    false_negatives = np.array(statistics["false_negatives"], dtype=np.float64)
    support = found + false_negatives
    f1_denominator = 2 * found + false_positives + false_negatives
    return {
        "accuracy": statistics["n_correct"] / statistics["n_rows"],
        "balanced_accuracy": _mean_ratio(found, support),
        "macro_f1": _mean_ratio(2 * found, f1_denominator),
        "log_loss": _number(statistics["log_loss_sum"]) / statistics["n_rows"],
    }


def _mean_ratio(numerators: Array, denominators: Array) -> float:
    """Return the mean over the classes whose denominator is not zero."""
    is_counted = denominators > 0
    ratios = numerators[is_counted] / denominators[is_counted]
    return float(ratios.sum() / len(ratios))


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
        "squared_error_sum": _finite(squared_error_sum),
        "absolute_error_sum": _finite(float(np.abs(errors).sum())),
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
        "squared_error_sum": _total(part["squared_error_sum"] for part in parts),
        "absolute_error_sum": _total(part["absolute_error_sum"] for part in parts),
        "target_mean": mean,
        "target_squared_deviation_sum": within + between,
    }


def _regression_values(statistics: RegressionStatistics) -> dict[str, float]:
    n_rows = statistics["n_rows"]
    squared_error_sum = _number(statistics["squared_error_sum"])
    return {
        "rmse": math.sqrt(squared_error_sum / n_rows),
        "mae": _number(statistics["absolute_error_sum"]) / n_rows,
        "r2": _r2(n_rows, squared_error_sum, statistics["target_squared_deviation_sum"]),
    }


def _r2(n_rows: int, squared_error_sum: float, squared_deviation_sum: float) -> float:
    """Return r2: NaN below two rows; for constant targets 1 if every prediction is exact, else 0 (as scikit-learn)."""
    if n_rows < 2 or math.isnan(squared_error_sum):
        return math.nan
    if squared_deviation_sum == 0:
        return 1.0 if squared_error_sum == 0 else 0.0
    return 1 - squared_error_sum / squared_deviation_sum


# Numbers that may be missing


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _number(stored: float | None) -> float:
    return math.nan if stored is None else stored


def _total(numbers: Iterable[float | None]) -> float | None:
    """Return the exact sum, so the order of parts does not matter; None when any of them is."""
    given = list(numbers)
    present = [number for number in given if number is not None]
    return math.fsum(present) if len(present) == len(given) else None
