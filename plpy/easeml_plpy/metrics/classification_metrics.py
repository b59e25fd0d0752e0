"""Metrics of class probabilities, and the counts by class from which they are computed.

A row whose outputs are not all finite is counted as wrong and predicts no class. Averages over classes leave out
classes without rows (balanced_accuracy), or without rows and without predictions (macro_f1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NotRequired, TypedDict

import numpy as np

from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.contract import Metric
from easeml_plpy.server.errors import InvalidArgument, InvalidData
from easeml_plpy.server.missing_numbers import number, total
from easeml_plpy.server.value_types import Array

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
    sums: NotRequired[dict[str, float | None]]


def measure_classification(outputs: Array, targets: Array) -> ClassificationStatistics:
    """Return statistics of probabilities (n, classes) against classes (n,). Raises InvalidData."""
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
    return float(0.0 - np.log(right.clip(SMALLEST_PROBABILITY, 1.0)).sum())  # 0, not -0, where all are certain


def combine_classification(parts: Sequence[ClassificationStatistics]) -> ClassificationStatistics:
    """Return statistics of all rows. Raises InvalidArgument."""
    if len({len(part["true_positives"]) for part in parts}) > 1:
        raise InvalidArgument("cannot combine statistics over different numbers of classes")
    return {
        "kind": "classification",
        "n_rows": sum(part["n_rows"] for part in parts),
        "n_correct": sum(part["n_correct"] for part in parts),
        "log_loss_sum": total(part["log_loss_sum"] for part in parts),
        "true_positives": _sum_by_class(part["true_positives"] for part in parts),
        "false_positives": _sum_by_class(part["false_positives"] for part in parts),
        "false_negatives": _sum_by_class(part["false_negatives"] for part in parts),
    }


def _sum_by_class(counts: Iterable[list[int]]) -> list[int]:
    return [sum(of_class) for of_class in zip(*counts, strict=True)]


def _accuracy(_: Task, statistics: ClassificationStatistics) -> float:
    return statistics["n_correct"] / statistics["n_rows"]


def _balanced_accuracy(_: Task, statistics: ClassificationStatistics) -> float:
    true_positives, _positives, missed = _counts(statistics)
    return _mean_ratio(true_positives, true_positives + missed)


def _macro_f1(_: Task, statistics: ClassificationStatistics) -> float:
    true_positives, false_positives, missed = _counts(statistics)
    return _mean_ratio(2 * true_positives, 2 * true_positives + false_positives + missed)


def _log_loss(_: Task, statistics: ClassificationStatistics) -> float:
    return number(statistics["log_loss_sum"]) / statistics["n_rows"]


def _counts(statistics: ClassificationStatistics) -> tuple[Array, Array, Array]:
    """Return true positives, false positives and false negatives by class."""
    true_positives = np.array(statistics["true_positives"], dtype=np.float64)
    false_positives = np.array(statistics["false_positives"], dtype=np.float64)
    return true_positives, false_positives, np.array(statistics["false_negatives"], dtype=np.float64)


def _mean_ratio(numerators: Array, denominators: Array) -> float:
    """Return the mean over the classes whose denominator is not zero."""
    is_counted = denominators > 0
    ratios = numerators[is_counted] / denominators[is_counted]
    return float(ratios.sum() / len(ratios))


ACCURACY = Metric(
    "accuracy", "classification", True, "share of rows whose most probable class is right", value=_accuracy
)
BALANCED_ACCURACY = Metric(
    "balanced_accuracy", "classification", True, "mean over classes of the share found", value=_balanced_accuracy
)
MACRO_F1 = Metric("macro_f1", "classification", True, "mean over classes of the F1 score", value=_macro_f1)
LOG_LOSS = Metric(
    "log_loss", "classification", False, "mean negative log probability of the right class", value=_log_loss
)
