"""Metrics of numbers, also of those in tensors, and the sums from which they are computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.contract import Metric
from easeml_plpy.server.errors import InvalidData
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
    sums: NotRequired[dict[str, float | None]]


def measure_regression(outputs: Array, targets: Array) -> RegressionStatistics:
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


def combine_regression(parts: Sequence[RegressionStatistics]) -> RegressionStatistics:
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


def mean_squared_error(statistics: Any) -> float:
    """Return the mean squared error over all numbers, of rows or of tensors."""
    return number(statistics["squared_error_sum"]) / _n_numbers(statistics)


def _n_numbers(statistics: Any) -> int:
    """Count the numbers of the outputs; at least 1."""
    n_numbers: int = max(statistics.get("n_numbers", statistics["n_rows"]), 1)
    return n_numbers


def _rmse(_: Task, statistics: Any) -> float:
    return math.sqrt(mean_squared_error(statistics))


def _mae(_: Task, statistics: Any) -> float:
    return number(statistics["absolute_error_sum"]) / _n_numbers(statistics)


def _r2(_: Task, statistics: Any) -> float:
    squared_deviation_sum = statistics["target_squared_deviation_sum"]
    if statistics["kind"] == "regression":
        return _r2_of_numbers(statistics["n_rows"], number(statistics["squared_error_sum"]), squared_deviation_sum)
    mse, deviation = mean_squared_error(statistics), squared_deviation_sum / _n_numbers(statistics)
    return 1 - mse / deviation if deviation else (1.0 if mse == 0 else 0.0)


def _r2_of_numbers(n_rows: int, squared_error_sum: float, squared_deviation_sum: float) -> float:
    """Return r2: NaN below two rows; for constant targets 1 if every prediction is exact, else 0 (as scikit-learn)."""
    if n_rows < 2 or math.isnan(squared_error_sum):
        return math.nan
    if squared_deviation_sum == 0:
        return 1.0 if squared_error_sum == 0 else 0.0
    return 1 - squared_error_sum / squared_deviation_sum


RMSE = Metric("rmse", "regression", False, "root of the mean squared error, in units of the target", value=_rmse)
MAE = Metric("mae", "regression", False, "mean absolute error, in units of the target", value=_mae)
R2 = Metric("r2", "regression", True, "share of the target's variance explained", value=_r2)
