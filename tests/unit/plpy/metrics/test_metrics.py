"""Metrics of parts combine to the metrics of the whole, and agree with scikit-learn."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as reference

from easeml_plpy.columns.task import Task
from easeml_plpy.evaluation import classification
from easeml_plpy.evaluation.scores import score_values
from easeml_plpy.metrics import METRICS
from easeml_plpy.metrics.metrics import (
    DEFAULT_METRIC,
    classes_seen,
    combine,
    is_better,
    measure,
    metric,
    values,
)
from easeml_plpy.server.errors import InvalidArgument, InvalidData, NotFound, ShapeMismatch
from tests import toy_metric

CLASSES = Task("classification", (3,), 4)
NUMBERS = Task("regression", (3,), 1)


def predictions(n_rows: int, seed: int = 0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    outputs = generator.dirichlet(np.ones(4), size=n_rows).astype(np.float32)
    return outputs, generator.choice([0, 1, 3], size=n_rows)


def numbers(n_rows: int, offset: float = 0.0) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    targets = generator.normal(size=n_rows) + offset
    return targets[:, None] + generator.normal(size=(n_rows, 1)) / 2, targets


def parts_of(task: Task, outputs: Any, targets: Any, sizes: list[int]) -> list[dict[str, Any]]:
    ends = np.cumsum(sizes)
    return [
        measure(task, outputs[end - size : end], targets[end - size : end])
        for size, end in zip(sizes, ends, strict=True)
    ]


def test_classification_agrees_with_scikit_learn() -> None:
    outputs, targets = predictions(500)
    predicted = outputs.argmax(axis=1)
    got = values(CLASSES, measure(CLASSES, outputs, targets))
    seen = (predicted == 2).any()
    assert seen, "a class without rows but with predictions belongs in this test"
    assert got["accuracy"] == pytest.approx(reference.accuracy_score(targets, predicted))
    assert got["macro_f1"] == pytest.approx(reference.f1_score(targets, predicted, average="macro"))
    recalls = [(predicted[targets == each] == each).mean() for each in (0, 1, 3)]
    assert got["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    right = outputs[np.arange(500), targets]
    assert got["log_loss"] == pytest.approx(-np.log(right).mean(), rel=1e-6)


def test_regression_agrees_with_scikit_learn() -> None:
    outputs, targets = numbers(500)
    got = values(NUMBERS, measure(NUMBERS, outputs, targets))
    assert got["rmse"] == pytest.approx(math.sqrt(reference.mean_squared_error(targets, outputs[:, 0])))
    assert got["mae"] == pytest.approx(reference.mean_absolute_error(targets, outputs[:, 0]))
    assert got["r2"] == pytest.approx(reference.r2_score(targets, outputs[:, 0]))


@pytest.mark.parametrize("sizes", [[100], [50, 50], [0, 1, 99], [33, 33, 34], [1] * 100])
def test_parts_combine_to_the_whole(sizes: list[int]) -> None:
    for task, (outputs, targets) in ((CLASSES, predictions(100)), (NUMBERS, numbers(100))):
        whole = values(task, measure(task, outputs, targets))
        parts = parts_of(task, outputs, targets, sizes)
        assert values(task, combine(parts)) == pytest.approx(whole, rel=1e-12)


def test_combining_does_not_depend_on_order_and_nests() -> None:
    parts = parts_of(NUMBERS, *numbers(100), sizes=[10, 20, 30, 40])
    together = values(NUMBERS, combine(parts))
    assert values(NUMBERS, combine(parts[::-1])) == together
    nested = combine([combine(parts[:2]), combine(parts[2:])])
    assert values(NUMBERS, nested) == pytest.approx(together, rel=1e-12)


def test_r2_survives_targets_far_from_zero() -> None:
    near, far = numbers(1000), numbers(1000, offset=1e8)
    expected = values(NUMBERS, measure(NUMBERS, *near))["r2"]
    sizes = [100] * 10
    assert values(NUMBERS, combine(parts_of(NUMBERS, *far, sizes=sizes)))["r2"] == pytest.approx(expected, rel=1e-5)


def test_statistics_survive_json() -> None:
    for task, (outputs, targets) in ((CLASSES, predictions(20)), (NUMBERS, numbers(20))):
        statistics = measure(task, outputs, targets)
        assert json.loads(json.dumps(statistics, allow_nan=False)) == statistics


@pytest.mark.parametrize("task", [CLASSES, NUMBERS])
def test_no_rows_give_nan_and_change_nothing(task: Task) -> None:
    empty = measure(task, np.empty((0, task.n_outputs), np.float32), np.empty(0, np.int64))
    assert empty["n_rows"] == 0
    got = values(task, combine([empty, empty]))
    assert set(got) == {each.name for each in METRICS.values() if each.task == task.kind}
    assert all(math.isnan(value) for value in got.values())
    outputs, targets = predictions(10) if task is CLASSES else numbers(10)
    some = measure(task, outputs, targets)
    assert combine([empty, some]) == some


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_outputs_that_are_not_finite_are_wrong_and_stored_as_null(broken: float) -> None:
    outputs = np.array([[broken, 0, 0, 0], [0, 1, 0, 0]], dtype=np.float32)
    statistics = measure(CLASSES, outputs, np.array([0, 1]))
    assert statistics["n_correct"] == 1
    assert statistics["false_negatives"] == [1, 0, 0, 0]
    assert statistics["false_positives"] == [0, 0, 0, 0]
    assert statistics["log_loss_sum"] is None
    assert math.isnan(values(CLASSES, combine([statistics, statistics]))["log_loss"])
    diverged = measure(NUMBERS, np.array([[broken], [1.0]]), np.array([0.0, 1.0]))
    assert diverged["squared_error_sum"] is None
    assert all(math.isnan(value) for value in values(NUMBERS, diverged).values())


def test_a_certain_mistake_costs_a_finite_log_loss() -> None:
    outputs = np.array([[1, 0, 0, 0]], dtype=np.float32)
    got = values(CLASSES, measure(CLASSES, outputs, np.array([1])))
    assert got["log_loss"] == pytest.approx(15.94, abs=0.01)


def test_answers_that_are_certain_and_right_cost_nothing_and_not_minus_nothing() -> None:
    sure = np.eye(4, dtype=np.float32)
    assert str(values(CLASSES, measure(CLASSES, sure, np.arange(4)))["log_loss"]) == "0.0"
    answers = classification.ClassAnswers(np.arange(4), sure.astype(np.float64))
    assert str(score_values(classification.SCORES, answers)["log_loss"]) == "0.0"


@pytest.mark.parametrize(("output", "r2"), [(2.0, 1.0), (3.0, 0.0)])
def test_r2_of_constant_targets_follows_scikit_learn(output: float, r2: float) -> None:
    got = values(NUMBERS, measure(NUMBERS, np.full((3, 1), output), np.full(3, 2.0)))
    assert got["r2"] == r2


def test_r2_of_one_row_is_not_defined() -> None:
    got = values(NUMBERS, measure(NUMBERS, np.ones((1, 1)), np.ones(1)))
    assert math.isnan(got["r2"])
    assert got["rmse"] == 0


NAN = math.nan


@pytest.mark.parametrize(
    ("name", "new", "old", "expected"),
    [
        ("accuracy", 0.9, 0.8, True),
        ("accuracy", 0.8, 0.9, False),
        ("rmse", 0.8, 0.9, True),
        ("rmse", 0.9, 0.8, False),
        ("accuracy", 0.9, 0.9, False),
        ("rmse", 0.9, 0.9, False),
        ("rmse", NAN, 0.9, False),
        ("rmse", 0.9, NAN, True),
        ("rmse", NAN, NAN, False),
        ("rmse", None, NAN, False),
        ("rmse", NAN, None, False),
        ("accuracy", None, 0.0, False),
        ("accuracy", 0.0, None, True),
        ("rmse", math.inf, 0.9, False),
    ],
)
def test_the_better_value(name: str, new: float | None, old: float | None, expected: bool) -> None:
    assert is_better(metric(name), {} if new is None else {name: new}, old, old) is expected


@pytest.mark.parametrize(
    ("accuracy", "loss", "expected"),
    [(1.0, 0.1, True), (1.0, 0.2, False), (1.0, 0.3, False), (1.0, None, False), (1.0, NAN, False), (0.9, 0.1, False)],
)
def test_of_equal_accuracies_the_lower_loss_is_better(accuracy: float, loss: float | None, expected: bool) -> None:
    measured = {"accuracy": accuracy} | ({} if loss is None else {"log_loss": loss})
    assert is_better(metric("accuracy"), measured, 1.0, 0.2) is expected
    assert is_better(metric("accuracy"), measured, 1.0, None) is (accuracy == 1.0 and loss in (0.1, 0.2, 0.3))


def test_each_kind_of_task_has_a_default_metric_of_its_own() -> None:
    assert {kind: METRICS[name].task for kind, name in DEFAULT_METRIC.items()} == {
        "classification": "classification",
        "regression": "regression",
    }


def test_an_unknown_metric_is_not_found() -> None:
    with pytest.raises(NotFound) as caught:
        metric("acuracy")
    assert "'accuracy'" in (caught.value.hint or "")


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ShapeMismatch):
        measure(CLASSES, np.ones((2, 3)), np.zeros(2, np.int64))
    with pytest.raises(ShapeMismatch):
        measure(NUMBERS, np.ones(2), np.zeros(2))
    with pytest.raises(InvalidData):
        measure(CLASSES, np.ones((2, 4)), np.array([0, 4]))
    with pytest.raises(InvalidData):
        measure(NUMBERS, np.ones((1, 1)), np.array([NAN]))
    with pytest.raises(InvalidArgument):
        combine([])
    some = measure(CLASSES, *predictions(3))
    with pytest.raises(InvalidArgument):
        combine([some, measure(NUMBERS, *numbers(3))])
    with pytest.raises(InvalidArgument):
        combine([some, {**some, "true_positives": [1]}])
    with pytest.raises(InvalidArgument):
        values(NUMBERS, some)


def test_classes_without_rows_are_not_seen() -> None:
    task = Task("classification", (1,), 4)
    outputs = np.eye(4, dtype=np.float32)[[0, 3, 2, 2]]
    assert classes_seen(measure(task, outputs, np.array([0, 0, 2, 2]))) == 2
    assert classes_seen(measure(task, outputs[:0], np.array([], dtype=np.int64))) == 0
    assert classes_seen(measure(Task("regression", (1,), 1), outputs[:, :1], np.array([0.0, 1, 2, 3]))) is None


def test_a_further_metric_has_sums_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, toy_metric.NAME, toy_metric.BRIER)
    outputs, targets = predictions(50)
    whole = values(CLASSES, measure(CLASSES, outputs, targets))
    assert whole["brier"] == pytest.approx(np.square(outputs - np.eye(4)[targets]).sum(axis=1).mean())
    assert values(CLASSES, combine(parts_of(CLASSES, outputs, targets, [20, 0, 30]))) == pytest.approx(whole)
    assert "brier" not in values(NUMBERS, measure(NUMBERS, *numbers(10)))


def test_parts_of_a_release_without_a_metric_leave_it_undefined(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, targets = predictions(50)
    former = measure(CLASSES, outputs, targets)
    monkeypatch.setitem(METRICS, toy_metric.NAME, toy_metric.BRIER)
    found = values(CLASSES, combine([former, measure(CLASSES, outputs, targets)]))
    assert math.isnan(found["brier"])
    assert found["accuracy"] == values(CLASSES, former)["accuracy"]
