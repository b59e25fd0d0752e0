"""What answers depend on: permutation importance as scikit-learn has it, Shapley values against their definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import lightgbm
import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.inspection import permutation_importance

from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.columns.layout import FormColumn
from easeml_plpy.columns.task import Task
from easeml_plpy.evaluation import attribution
from easeml_plpy.evaluation.attribution import sampled_attribution
from easeml_plpy.evaluation.explain import LEAST, bounded
from easeml_plpy.evaluation.features import Feature, feature_places, features_of, mixed, patches_of
from easeml_plpy.evaluation.importance import importance_rows
from easeml_plpy.trainers import ARCHITECTURES, trainer_for
from easeml_plpy.trainers.lightgbm import boosters
from easeml_plpy.trainers.lightgbm.trial import LightGBMTrial

ENCODER = Encoder.from_json(
    {
        "inputs": [
            {"kind": "numeric", "column": "x", "type": "float8", "missing": []},
            {"kind": "categorical", "column": "c", "type": "text", "missing": [], "categories": ["r", "g", "b"]},
            {"kind": "tensor", "column": "v", "type": "_float4", "dtype": "f4", "shape": [3], "missing": []},
            {"kind": "tensor", "column": "image", "type": "bytea", "dtype": "u1", "shape": [2, 2], "missing": []},
        ],
        "input_shape": [10],
        "target": {"column": "y", "type": "float8", "task": "regression", "mean": 0.0, "scale": 1.0},
    }
)
FEATURES = features_of(ENCODER)


def fields_of(n_rows: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        rng.normal(size=n_rows),
        rng.integers(0, 3, n_rows).astype(np.int32),
        rng.normal(size=(n_rows, 3)).astype(np.float32),
        rng.integers(0, 256, (n_rows, 2, 2)).astype(np.uint8),
    ]


def answer(fields: Sequence[np.ndarray]) -> np.ndarray:
    """A function with interactions, which takes no notice of v[3]."""
    x, c, v, image = fields
    return x * (c + 1) + 2 * v[:, 0] - x * v[:, 1] + image.reshape(len(x), -1).mean(axis=1) / 100


def test_elements_of_short_arrays_are_features_and_patches_of_images() -> None:
    patches = ["image[1:1][1:1]", "image[1:1][2:2]", "image[2:2][1:1]", "image[2:2][2:2]"]
    assert [feature.name for feature in FEATURES] == ["x", "c", "v[1]", "v[2]", "v[3]", *patches]


@pytest.mark.parametrize(
    ("shape", "n_patches", "first"),
    [
        ((28, 28), 49, (slice(0, 4), slice(0, 4))),
        ((3, 30, 20), 42, (slice(0, 3), slice(0, 5), slice(0, 3))),
        ((30, 20, 3), 42, (slice(0, 5), slice(0, 3), slice(0, 3))),
        ((1000,), 63, (slice(0, 16),)),
        ((5, 4, 3, 2), 120, (slice(0, 1), slice(0, 1), slice(0, 1), slice(0, 1))),
    ],
)
def test_patches_cover_an_array_once(shape: tuple[int, ...], n_patches: int, first: tuple[slice, ...]) -> None:
    covered = np.zeros(shape, int)
    patches = patches_of(shape)
    for patch in patches:
        covered[patch] += 1
    assert (len(patches), patches[0]) == (n_patches, first)
    assert (covered == 1).all()


def test_rows_that_are_asked_for_are_fewer_where_they_hold_many_numbers() -> None:
    assert bounded(ENCODER, 9 * 5, 2000) == 2000
    tensor = {"kind": "tensor", "column": "i", "type": "bytea", "dtype": "u1", "missing": []}
    for shape, expected in (([28, 28], (1 << 25) // (49 * 5 * 784)), ([3, 224, 224], LEAST)):
        told = {"inputs": [{**tensor, "shape": shape}], "input_shape": shape, "target": ENCODER.target.to_json()}
        encoder = Encoder.from_json(told)
        assert bounded(encoder, len(features_of(encoder)) * 5, 2000) == expected


def test_large_rows_are_asked_for_few_at_a_time_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(fields: Sequence[np.ndarray]) -> np.ndarray:
        asked.append(len(fields[0]))
        return answer(fields)

    rows = (fields_of(1, 3), fields_of(40, 4))
    whole = sampled_attribution(counted, rows, FEATURES, n_orders=30, seed=5)
    assert asked == [30 * 2 * 10]
    monkeypatch.setattr(attribution, "BYTES_AT_ONCE", 1)
    asked.clear()
    found = sampled_attribution(counted, rows, FEATURES, n_orders=30, seed=5)
    assert asked == [2 * 10] * 30
    assert found.parts.tolist() == pytest.approx(whole.parts.tolist())


def test_mixed_rows_take_each_feature_from_the_row_that_is_named() -> None:
    fields = fields_of(5, 0)
    rows = np.array([[0, 1, 2, 3, 4, 0, 1, 2, 3], [4] * 9])
    x, c, v, image = mixed(fields, FEATURES, rows)
    assert x.tolist() == [fields[0][0], fields[0][4]]
    assert c.tolist() == [fields[1][1], fields[1][4]]
    assert v.tolist() == [[fields[2][2, 0], fields[2][3, 1], fields[2][4, 2]], fields[2][4].tolist()]
    (a, b), (c, d) = [[fields[3][2 * y + x][y, x] for x in range(2)] for y in range(2)]
    assert image.tolist() == [[[a, b], [c, d]], fields[3][4].tolist()]


def test_columns_of_a_view_belong_to_the_feature_they_were_made_of() -> None:
    layout = (
        FormColumn("category", "c"), FormColumn("number", "c", "target 0"), FormColumn("number", "v", "2"),
        FormColumn("number", "image", "3"), FormColumn("number", "x"), FormColumn("number", "x", "hour"),
    )  # fmt: skip
    assert feature_places(FEATURES, layout).tolist() == [1, 1, 4, 8, 0, 0]


class _Matrix(BaseEstimator):
    """The same function of a matrix of numbers, as scikit-learn would have it."""

    def fit(self, rows: np.ndarray, targets: np.ndarray) -> _Matrix:
        return self

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return answer([rows[:, 0], rows[:, 1], rows[:, 2:5], rows[:, 5:6, None]])


def test_importance_is_that_of_scikit_learn() -> None:
    fields = fields_of(200, 1)
    fields[3][:] = fields[3][:, :1, :1]  # the mean is the number itself, so that a matrix can have it
    targets = answer(fields) + np.random.default_rng(2).normal(size=200)

    def score(outputs: np.ndarray, truth: np.ndarray) -> float:
        return -float(np.square(outputs - truth).mean())

    features = [*FEATURES[:5], Feature("image", 3, None)]
    found = list(importance_rows(answer, (fields, targets), features, score, n_repeats=4, seed=7))
    matrix = np.column_stack([fields[0], fields[1], fields[2], fields[3][:, 0, 0]]).astype(np.float64)
    expected = permutation_importance(
        _Matrix(), matrix, targets, scoring=lambda model, rows, truth: score(model.predict(rows), truth),
        n_repeats=4, random_state=7,
    )  # fmt: skip
    by_name = {row["input"]: (row["importance"], row["standard_deviation"]) for row in found}
    for k, feature in enumerate(features):
        mean_and_deviation = expected.importances_mean[k], expected.importances_std[k]
        assert by_name[feature.name] == pytest.approx(mean_and_deviation, rel=1e-5, abs=1e-9)
    assert by_name["v[3]"] == (0.0, 0.0)
    assert [row["importance"] for row in found] == sorted((row["importance"] for row in found), reverse=True)


def exact_values(row: Sequence[np.ndarray], background: Sequence[np.ndarray]) -> list[float]:
    """Shapley values by their definition, over all coalitions and background rows."""
    n, n_background = len(FEATURES), len(background[0])
    fields = [np.concatenate(both) for both in zip(row, background, strict=True)]

    def worth(coalition: tuple[int, ...]) -> float:
        rows = np.tile(np.arange(1, n_background + 1)[:, None], (1, n))
        rows[:, list(coalition)] = 0
        return float(answer(mixed(fields, FEATURES, rows)).mean())

    found = []
    for k in range(n):
        others = [j for j in range(n) if j != k]
        found.append(
            sum(
                math.factorial(len(c)) * math.factorial(n - len(c) - 1) / math.factorial(n)
                * (worth(tuple(sorted((*c, k)))) - worth(c))
                for size in range(n)
                for c in combinations(others, size)
            )
        )  # fmt: skip
    return found


def test_sampled_values_are_within_their_errors_and_add_up() -> None:
    row, background = fields_of(1, 3), fields_of(40, 4)
    found = sampled_attribution(answer, (row, background), FEATURES, n_orders=400, seed=5)
    assert found.errors is not None
    assert found.base + found.parts.sum() == pytest.approx(answer(row)[0], abs=1e-6)
    gaps = np.abs(found.parts - exact_values(row, background))
    assert (gaps <= 4 * found.errors + 1e-9).all()
    assert found.errors.max() < 0.2
    assert (found.parts[4], found.errors[4]) == (0.0, 0.0)


def test_values_of_a_sum_are_exact_where_each_background_row_is_asked_equally_often() -> None:
    row, background = fields_of(1, 6), fields_of(10, 7)

    def total(fields: Sequence[np.ndarray]) -> np.ndarray:
        return 3 * fields[0] + fields[2].sum(axis=1, dtype=np.float64)

    found = sampled_attribution(total, (row, background), FEATURES, n_orders=20, seed=0)
    assert found.parts[0] == pytest.approx(3 * (row[0][0] - background[0].mean()))
    assert found.parts[2:5] == pytest.approx((row[2][0] - background[2].mean(axis=0)).tolist(), abs=1e-6)
    again = sampled_attribution(total, (row, background), FEATURES, n_orders=20, seed=0)
    assert again.parts.tolist() == found.parts.tolist()


@pytest.mark.parametrize("task", [Task("regression", (4,), 1, "float64"), Task("classification", (4,), 2, "float64"),
                                  Task("classification", (4,), 3, "float64")])  # fmt: skip
def test_values_of_trees_are_those_of_lightgbm_and_add_up_to_the_margins(task: Task) -> None:
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(300, 4)))
    score = inputs[:, 0] * inputs[:, 1] + inputs[:, 2]
    targets = (
        score.float() if task.kind == "regression" else (score > 0).long() + (score > 1).long() * (task.n_outputs - 2)
    )
    chosen = ARCHITECTURES["lightgbm"]
    live = trainer_for("boosting").start(chosen, {"trees_per_epoch": 12}, task, n_steps_total=2, seed=1)
    assert isinstance(live, LightGBMTrial)
    for seed in (1, 2):
        live.train(inputs, targets, seed=seed, pause=lambda: None)
    found = live.contributions(inputs[:20])
    expected = np.zeros_like(found)
    expected[:, :, -1] = live._base
    margins = np.zeros(found.shape[:2]) + live._base
    for text in live._texts:
        own = lightgbm.Booster(model_str=text)
        expected += own.predict(inputs[:20].numpy(), pred_contrib=True).reshape(found.shape)
        margins += own.predict(inputs[:20].numpy(), raw_score=True).reshape(margins.shape)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)  # rounds are added up in another order
    assert found.sum(axis=2) == pytest.approx(margins)
    assert boosters.contributions(live._booster(0), inputs[:1]).shape == (1, *found.shape[1:])
