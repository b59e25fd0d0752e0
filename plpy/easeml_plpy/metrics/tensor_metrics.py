"""Metrics of output tensors, and the additive statistics of one partition from which they are computed.

psnr and ssim are relative to the range of the output (its training rows, or 0 to 255 of 8-bit values); psnr is at most
100. ssim is that of Wang et al. (2004) over squares of at most 7 by 7, the mean of all squares, channels and rows.
token_accuracy reads the last size as tokens: the share of positions whose largest number is at the same place as the
target's. For series of unequal length the steps that the target has are measured. A missing step, or one too many,
counts as a wrong token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

import numpy as np

from easeml_plpy.columns.series_target import lengths_of
from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.contract import Metric
from easeml_plpy.metrics.regression_metrics import mean_squared_error
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.missing_numbers import finite, number, total
from easeml_plpy.server.value_types import Array

WINDOW = 7
ROWS_AT_ONCE = 256
SMALLEST_SHARE = 1e-10
"""Of the squared range: a smaller mean squared error counts as this one."""
PICTURE_CHANNELS = (1, 3, 4)


class TensorStatistics(TypedDict):
    """Sums over rows and numbers; the spread of targets is kept around their mean."""

    kind: Literal["tensor"]
    n_rows: int
    n_numbers: int
    squared_error_sum: float | None
    absolute_error_sum: float | None
    target_mean: float
    target_squared_deviation_sum: float
    ssim_sum: float | None
    n_right_tokens: int
    n_tokens: int
    sums: NotRequired[dict[str, float | None]]


def measure_tensors(task: Task, outputs: Array, targets: Array) -> TensorStatistics:
    """Return statistics of outputs against targets, both (n, n_outputs), some rows at a time. Raises InvalidData."""
    pages = [slice(start, start + ROWS_AT_ONCE) for start in range(0, max(len(targets), 1), ROWS_AT_ONCE)]
    return combine_tensors([_measure_page(task, outputs[page], targets[page]) for page in pages])


def combine_tensors(parts: Sequence[TensorStatistics]) -> TensorStatistics:
    """Combine statistics; means and squared deviations as in Chan, Golub and LeVeque (1979), over all parts at once."""
    n_numbers = sum(part["n_numbers"] for part in parts)
    mean = math.fsum(part["n_numbers"] * part["target_mean"] for part in parts) / max(n_numbers, 1)
    within = math.fsum(part["target_squared_deviation_sum"] for part in parts)
    between = math.fsum(part["n_numbers"] * (part["target_mean"] - mean) ** 2 for part in parts)
    return {
        "kind": "tensor",
        "n_rows": sum(part["n_rows"] for part in parts),
        "n_numbers": n_numbers,
        "squared_error_sum": total([part["squared_error_sum"] for part in parts]),
        "absolute_error_sum": total([part["absolute_error_sum"] for part in parts]),
        "target_mean": mean,
        "target_squared_deviation_sum": within + between,
        "ssim_sum": total([part["ssim_sum"] for part in parts]),
        "n_right_tokens": sum(part["n_right_tokens"] for part in parts),
        "n_tokens": sum(part["n_tokens"] for part in parts),
    }


def _mse(_: Task, statistics: TensorStatistics) -> float:
    return mean_squared_error(statistics)


def _psnr(task: Task, statistics: TensorStatistics) -> float:
    mse = mean_squared_error(statistics)
    low, high = task.output_range
    span = (high - low) ** 2
    return 10 * math.log10(span / max(mse, SMALLEST_SHARE * span)) if span and not math.isnan(mse) else math.nan


def _ssim(task: Task, statistics: TensorStatistics) -> float:
    return number(statistics["ssim_sum"]) / max(statistics["n_rows"], 1) if _is_picture(task) else math.nan


def _token_accuracy(_: Task, statistics: TensorStatistics) -> float:
    n_tokens = statistics["n_tokens"]
    return statistics["n_right_tokens"] / n_tokens if n_tokens else math.nan


def structural_similarity(outputs: Array, targets: Array, span: float) -> Array:
    """Return the ssim (n,) of pictures (n, height, width, channels) whose numbers span that range."""
    from scipy.ndimage import uniform_filter

    side = min(WINDOW, *targets.shape[1:3])
    side -= 1 - side % 2
    first, second = (0.01 * span) ** 2, (0.03 * span) ** 2

    def mean(numbers: Array) -> Array:
        filtered: Array = uniform_filter(numbers, (0, side, side, 0))
        edge = side // 2
        return filtered[:, edge : numbers.shape[1] - edge, edge : numbers.shape[2] - edge]

    x, y = outputs.astype(np.float64), targets.astype(np.float64)
    mean_x, mean_y = mean(x), mean(y)
    unbiased = side**2 / max(side**2 - 1, 1)
    spread_x, spread_y = (unbiased * (mean(a * a) - m * m) for a, m in ((x, mean_x), (y, mean_y)))
    together = unbiased * (mean(x * y) - mean_x * mean_y)
    above = (2 * mean_x * mean_y + first) * (2 * together + second)
    below = (mean_x**2 + mean_y**2 + first) * (spread_x + spread_y + second)
    similarity: Array = (above / below).mean(axis=(1, 2, 3))
    return similarity


def _measure_page(task: Task, outputs: Array, targets: Array) -> TensorStatistics:
    n_rows = len(targets)
    if task.output_objects is not None:
        outputs, targets, (n_right, n_tokens) = _of_series(task, outputs, targets)
    else:
        n_right, n_tokens = _tokens(task, outputs, targets)
    exact = targets.astype(np.float64)
    if not np.isfinite(exact).all():
        raise InvalidData("a target is not finite")
    with np.errstate(over="ignore", invalid="ignore"):
        errors = outputs.astype(np.float64) - exact
        squared_error_sum, absolute_error_sum = float(np.square(errors).sum()), float(np.abs(errors).sum())
    mean = float(exact.mean()) if exact.size else 0.0
    return {
        "kind": "tensor",
        "n_rows": n_rows,
        "n_numbers": exact.size,
        "squared_error_sum": finite(squared_error_sum),
        "absolute_error_sum": finite(absolute_error_sum),
        "target_mean": mean,
        "target_squared_deviation_sum": float(np.square(exact - mean).sum()),
        "ssim_sum": _ssim_sum(task, outputs, exact),
        "n_right_tokens": n_right,
        "n_tokens": n_tokens,
    }


def _tokens(task: Task, outputs: Array, targets: Array) -> tuple[int, int]:
    """Return how many positions have the right greatest number, and how many there are; none for pictures."""
    width = task.output_shape[-1]
    if _is_picture(task) or width < 2:
        return 0, 0
    given, expected = outputs.reshape(-1, width), targets.reshape(-1, width)
    is_right = np.isfinite(given).all(axis=1) & (given.argmax(axis=1) == expected.argmax(axis=1))
    return int(is_right.sum()), len(expected)


def _of_series(task: Task, outputs: Array, targets: Array) -> tuple[Array, Array, tuple[int, int]]:
    """Return predicted and actual numbers (steps, numbers) of the steps that series should have, and how many of how
    many tokens are right.
    """
    given, expected = (rows.reshape(-1, *task.output_shape) for rows in (outputs, targets))
    is_expected = expected[:, :, -1] > 0
    is_written = np.arange(expected.shape[1]) < lengths_of(given)[:, None]
    is_right = (given[:, :, :-1].argmax(axis=2) == expected[:, :, :-1].argmax(axis=2)) & is_expected & is_written
    has_tokens = expected.shape[2] > 2
    tokens = int(is_right.sum()), int((is_expected | is_written).sum())
    return given[is_expected, :-1], expected[is_expected, :-1], tokens if has_tokens else (0, 0)


def _ssim_sum(task: Task, outputs: Array, targets: Array) -> float | None:
    if not _is_picture(task) or not len(targets):
        return 0.0
    low, high = task.output_range
    if high <= low or not np.isfinite(outputs).all():
        return None
    shape = (len(targets), *task.output_shape)
    return finite(float(structural_similarity(outputs.reshape(shape), targets.reshape(shape), high - low).sum()))


def _is_picture(task: Task) -> bool:
    shape = task.output_shape
    return len(shape) == 3 and shape[-1] in PICTURE_CHANNELS and min(shape[:2]) >= 3


MSE = Metric("mse", "tensor", False, "mean squared error over all numbers of the outputs", value=_mse)
PSNR = Metric(
    "psnr", "tensor", True, "peak signal-to-noise ratio in decibels, over the range of the outputs", value=_psnr
)
SSIM = Metric("ssim", "tensor", True, "structural similarity of pictures, 1 at best", value=_ssim)
TOKEN_ACCURACY = Metric(
    "token_accuracy", "tensor", True, "share of steps whose greatest number is the right one", value=_token_accuracy
)
