"""What all metrics share: statistics of a partition, of a whole split, and the values that they come to.

A partition is measured where it lies; only its statistics travel. Statistics are plain JSON: a number that is
not finite (a diverged trial) is stored as null, absorbs what it is combined with, and makes its metric NaN.
Targets and outputs of a regression arrive in the target's own units. With no rows every metric is NaN; r2 needs two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from easeml_plpy.columns.task import Task, TaskKind
from easeml_plpy.metrics import METRICS
from easeml_plpy.metrics.classification_metrics import (
    ClassificationStatistics,
    combine_classification,
    measure_classification,
)
from easeml_plpy.metrics.contract import Metric, MetricTask, kind_of
from easeml_plpy.metrics.regression_metrics import RegressionStatistics, combine_regression, measure_regression
from easeml_plpy.metrics.tensor_metrics import TensorStatistics, combine_tensors, measure_tensors
from easeml_plpy.server.errors import InvalidArgument, NotFound, ShapeMismatch, close_matches_hint
from easeml_plpy.server.missing_numbers import finite, total
from easeml_plpy.server.value_types import Array

Statistics: TypeAlias = ClassificationStatistics | RegressionStatistics | TensorStatistics

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
    statistics = _measure(task, outputs, targets)
    if functions := [metric.sums for metric in METRICS.values() if metric.sums is not None and metric.measures(task)]:
        results = [sums(task, outputs, targets) for sums in functions]
        statistics["sums"] = {name: finite(value) for result in results for name, value in result.items()}
    return statistics


def _measure(task: Task, outputs: Array, targets: Array) -> Statistics:
    if task.output_shape and outputs.shape == targets.shape == (len(targets), task.n_outputs):
        return measure_tensors(task, outputs, targets)
    if outputs.shape != (len(targets), task.n_outputs) or targets.ndim != 1:
        raise ShapeMismatch(
            f"expected outputs of shape {(len(targets), task.n_outputs)} and flat targets, "
            f"got {outputs.shape} and {targets.shape}"
        )
    if task.kind == "classification":
        return measure_classification(outputs, targets)
    return measure_regression(outputs, targets)


def combine(parts: Sequence[Statistics]) -> Statistics:
    """Return statistics of all rows from those of parts, in any order. Raises InvalidArgument."""
    statistics = _combine(parts)
    # Parts that an earlier release measured lack the sums of newer metrics, which are then not defined.
    sums_of_parts = [part.get("sums", {}) for part in parts]
    if names := {name for sums in sums_of_parts for name in sums}:
        statistics["sums"] = {name: total(sums.get(name) for sums in sums_of_parts) for name in sorted(names)}
    return statistics


def _combine(parts: Sequence[Statistics]) -> Statistics:
    if not parts:
        raise InvalidArgument("there are no statistics to combine")
    kinds = sorted({part["kind"] for part in parts})
    if len(kinds) > 1:
        raise InvalidArgument(f"cannot combine statistics of different kinds: {', '.join(kinds)}")
    if tensors := [part for part in parts if part["kind"] == "tensor"]:
        return combine_tensors(tensors)
    if classifications := [part for part in parts if part["kind"] == "classification"]:
        return combine_classification(classifications)
    return combine_regression([part for part in parts if part["kind"] == "regression"])


def values(task: Task, statistics: Statistics) -> dict[str, float]:
    """Return every metric of the task by name, NaN where it is not defined."""
    if statistics["kind"] != kind_of(task):
        raise InvalidArgument(f"expected statistics of a {kind_of(task)}, got {statistics['kind']}")
    measured = [metric for metric in METRICS.values() if metric.measures(task)]
    if statistics["n_rows"] == 0:
        return {metric.name: math.nan for metric in measured}
    return {metric.name: metric.value(task, statistics) for metric in measured}


def mean_over_folds(task: Task, folds: Sequence[Statistics]) -> dict[str, tuple[float, float]]:
    """Return of every metric of the task its mean over folds, and the standard error of that mean."""
    by_fold = [values(task, statistics) for statistics in folds]
    means = {}
    for name in by_fold[0]:
        column = np.array([fold[name] for fold in by_fold])
        means[name] = float(column.mean()), float(column.std(ddof=1)) / math.sqrt(len(column))
    return means


def classes_seen(statistics: Statistics) -> int | None:
    """Return how many classes have rows in the statistics; None for numbers."""
    if statistics["kind"] != "classification":
        return None
    by_class = zip(statistics["true_positives"], statistics["false_negatives"], strict=True)
    return sum(right + missed > 0 for right, missed in by_class)
