"""Metrics of tensors: what they are of pictures and tokens, and that parts add up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.metrics import combine, measure, values
from easeml_plpy.metrics.tensor_metrics import structural_similarity
from easeml_plpy.server.errors import InvalidArgument, InvalidData

PICTURES = Task("regression", (1,), 12 * 11 * 3, output_shape=(12, 11, 3), output_range=(0.0, 255.0))
TOKENS = Task("regression", (1,), 6, output_shape=(2, 3), output_range=(0.0, 1.0))


def pictures(n: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (n, PICTURES.n_outputs)).astype(np.float64)


def test_every_metric_of_pictures_is_what_its_formula_says() -> None:
    targets = pictures(9, 0)
    outputs = np.clip(targets + pictures(9, 1) / 5, 0, 255)
    found = values(PICTURES, measure(PICTURES, outputs, targets))
    error = outputs - targets
    assert found["mse"] == pytest.approx(np.mean(error**2))
    assert found["rmse"] == pytest.approx(math.sqrt(np.mean(error**2)))
    assert found["mae"] == pytest.approx(np.abs(error).mean())
    assert found["r2"] == pytest.approx(1 - np.mean(error**2) / targets.var())
    assert found["psnr"] == pytest.approx(10 * math.log10(255**2 / np.mean(error**2)))
    assert found["ssim"] == pytest.approx(np.mean([slow_ssim(a, b) for a, b in zip(outputs, targets, strict=True)]))
    assert math.isnan(found["token_accuracy"])


def slow_ssim(output: Any, target: Any) -> float:
    """Wang et al. (2004), equation 13, square by square."""
    x, y = output.reshape(12, 11, 3), target.reshape(12, 11, 3)
    first, second = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    found = []
    for channel in range(3):
        for row in range(12 - 6):
            for column in range(11 - 6):
                a, b = (each[row : row + 7, column : column + 7, channel] for each in (x, y))
                covariance = ((a - a.mean()) * (b - b.mean())).sum() / 48
                above = (2 * a.mean() * b.mean() + first) * (2 * covariance + second)
                below = (a.mean() ** 2 + b.mean() ** 2 + first) * (a.var(ddof=1) + b.var(ddof=1) + second)
                found.append(above / below)
    return float(np.mean(found))


def test_a_perfect_answer_has_the_best_values() -> None:
    targets = pictures(4, 2)
    found = values(PICTURES, measure(PICTURES, targets, targets))
    assert (found["mse"], found["psnr"], found["r2"]) == (0.0, pytest.approx(100.0), 1.0)
    assert found["ssim"] == pytest.approx(1.0)


def test_small_pictures_have_smaller_squares() -> None:
    rng = np.random.default_rng(0)
    assert structural_similarity(*(rng.random((2, 4, 5, 1)) for _ in "ab"), 1.0).shape == (2,)


def test_tokens_are_right_where_the_greatest_number_is() -> None:
    targets = np.array([[0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0]], float)
    outputs = np.array([[0.1, 0.9, 0.0, 0.2, 0.7, 0.1], [0, 0, 0.4, math.nan, 1, 0]])
    statistics = measure(TOKENS, outputs, targets)
    found = values(TOKENS, statistics)
    assert found["token_accuracy"] == 0.5
    assert math.isnan(found["ssim"])
    assert math.isnan(found["rmse"]), "a number that is not finite spoils the error"


def test_parts_add_up_to_the_whole_in_any_order() -> None:
    targets, outputs = pictures(700, 3), pictures(700, 4)
    whole = measure(PICTURES, outputs, targets)
    parts = [measure(PICTURES, outputs[page], targets[page]) for page in (slice(0, 5), slice(5, 300), slice(300, 700))]
    for order in (parts, parts[::-1]):
        assert values(PICTURES, combine(order)) == pytest.approx(values(PICTURES, whole), nan_ok=True)


def test_no_rows_have_no_metrics_and_other_kinds_do_not_mix() -> None:
    empty = np.zeros((0, PICTURES.n_outputs))
    found = values(PICTURES, measure(PICTURES, empty, empty))
    assert set(found) == {"rmse", "mae", "r2", "mse", "psnr", "ssim", "token_accuracy"}
    assert all(math.isnan(value) for value in found.values())
    number = measure(Task("regression", (1,), 1), np.zeros((1, 1)), np.zeros(1))
    with pytest.raises(InvalidArgument, match="different kinds: regression, tensor"):
        combine([number, measure(PICTURES, empty, empty)])
    with pytest.raises(InvalidData, match="not finite"):
        measure(TOKENS, np.zeros((1, 6)), np.full((1, 6), math.nan))
