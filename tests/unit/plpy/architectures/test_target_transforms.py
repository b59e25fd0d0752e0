"""A skewed target is learnt as its root or logarithm; the trial answers on the standard scale all the same."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.procedures.race.portfolio import choose_portfolio
from easeml_plpy.architectures import complete
from easeml_plpy.architectures.tables.target_transforms import LOGARITHM, ROOT, TargetTransform, is_skewed
from easeml_plpy.catalogue.catalog import specifications_for
from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.metrics import measure, values
from easeml_plpy.server.value_types import Array
from easeml_plpy.trainers import answering_trial, architecture, trainer_for
from tests.unit.plpy.trainers.training_rows import no_pause

RANGE = (-0.5, 8.0)
TASK = Task("regression", (3,), 1, "float64", target_range=RANGE)
CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("lightgbm", {"trees_per_epoch": 60, "num_leaves": 15}),
    ("mlp", {"hidden_units": [32], "learning_rate": 0.01, "averaging": 0.9}),
    ("tabm", {"width": 16, "n_blocks": 2, "n_members": 4, "learning_rate": 0.03, "averaging": 0.9}),
]


def rows_of(name: str) -> tuple[Task, torch.Tensor, torch.Tensor]:
    """Rows whose targets are products: their logarithm is a sum."""
    inputs = torch.from_numpy(np.random.default_rng(1).normal(size=(1200, 3)))
    above = torch.exp(inputs @ torch.tensor([0.8, -0.6, 0.4], dtype=torch.float64))
    targets = (RANGE[0] + above * 0.6).clamp(max=RANGE[1]).to(torch.float32)
    kind = architecture(name).view == "tree"
    return (
        (TASK, inputs, targets) if kind else (Task("regression", (3,), 1, target_range=RANGE), inputs.float(), targets)
    )


@given(
    st.sampled_from([ROOT, LOGARITHM]), st.floats(-50, 5), st.floats(0.01, 100), st.floats(0, 1), st.floats(-1e30, 1e30)
)
def test_what_is_learnt_is_answered_back_and_wild_answers_are_bounded(
    name: str, low: float, width: float, share: float, wild: float
) -> None:
    transform = TargetTransform(name, low, low + width)
    value = np.array([low + share * width])
    assert transform.inverse(transform.forward(value)) == pytest.approx(value, abs=1e-9 * (1 + abs(low) + width))
    assert low - 1e-9 <= float(transform.inverse(np.array([wild]))[0]) <= low + 2 * width + 1e-6
    both = (transform.forward(value), transform.forward(torch.from_numpy(value), torch).numpy())
    np.testing.assert_allclose(*both, rtol=1e-12)


@pytest.mark.parametrize("name_of", [ROOT, LOGARITHM])
@pytest.mark.parametrize(("name", "config"), CONFIGS)
def test_a_trial_answers_on_the_standard_scale_whatever_it_learns(
    name: str, config: dict[str, Any], name_of: str
) -> None:
    task, inputs, targets = rows_of(name)
    chosen, asked = architecture(name), {**config, "target_transform": name_of}
    live = trainer_for(chosen.trainer).start(chosen, asked, task, n_steps_total=100, seed=1)
    for seed in range(12):
        live.train(inputs[:800], targets[:800], seed=seed, pause=no_pause)
    answers = live.outputs(inputs[800:])
    assert values(task, measure(task, answers.astype(np.float64), targets[800:].numpy()))["r2"] > 0.6
    again = trainer_for(chosen.trainer).resume(chosen, asked, task, live.dump())
    assert np.array_equal(again.outputs(inputs[800:]), answers)
    only = answering_trial(chosen, asked, task, live.dump()).outputs(inputs[800:].numpy())
    np.testing.assert_allclose(only, answers, rtol=2e-5, atol=1e-5)


def logarithmic_error(answers: Array, targets: torch.Tensor) -> float:
    logs = [np.log(np.maximum(numbers, RANGE[0]) - RANGE[0] + 0.05) for numbers in (answers[:, 0], targets.numpy())]
    return float(np.mean((logs[0] - logs[1]) ** 2))


def test_trials_on_the_same_rows_with_and_without_a_transform_do_not_disturb_each_other() -> None:
    """Rows are binned once for all trials: not where their targets differ."""
    chosen, (task, inputs, targets) = architecture("lightgbm"), rows_of("lightgbm")
    answers = []
    for transform in ("none", LOGARITHM, "none"):
        live = trainer_for("boosting").start(
            chosen, {"target_transform": transform, "trees_per_epoch": 20}, task, n_steps_total=1, seed=0
        )
        live.train(inputs, targets, seed=0, pause=no_pause)
        answers.append(live.outputs(inputs))
    assert np.array_equal(answers[0], answers[2])
    assert logarithmic_error(answers[1], targets) < 0.5 * logarithmic_error(answers[0], targets)


def test_a_target_without_a_range_and_classes_are_refused() -> None:
    for kind, n_outputs, words in (("regression", 1, "refresh it"), ("classification", 3, "one of 3 classes")):
        for name in ("lightgbm", "mlp"):
            task = Task(kind, (3,), n_outputs)  # type: ignore[arg-type]
            chosen = architecture(name)
            assert chosen.config_objection(task, complete(chosen, {})) is None
            assert words in str(chosen.config_objection(task, complete(chosen, {"target_transform": ROOT})))


def searched(target: dict[str, Any] | None) -> Any:
    text = json.loads(specifications_for(["lightgbm"], None if target is None else json.dumps(target)))
    return next(each["search"] for each in text[0]["hyperparameters"] if each["name"] == "target_transform")


def test_only_skewed_targets_are_searched_with_transforms_and_those_come_early() -> None:
    number = {"column": "y", "type": "float8", "task": "regression", "mean": 10.0, "scale": 3.0}
    assert searched(None) is None
    assert searched(number) is None
    assert searched(number | {"low": 1.0, "high": 19.0}) is None
    assert searched(number | {"low": 7.0, "high": 90.0}) == ["none", ROOT, LOGARITHM]
    assert searched({"column": "y", "type": "text", "task": "classification", "labels": ["a", "b"]}) is None
    assert not is_skewed(5.0, 5.0, 5.0)
    declared = [each.to_json() for each in architecture("lightgbm").hyperparameters]
    plain = json.loads(choose_portfolio(json.dumps([{"architecture": "lightgbm", "hyperparameters": declared}]), None))
    assert {config["target_transform"] for config in plain["lightgbm"]} == {"none"}
    for each in declared:
        each["search"] = ["none", ROOT, LOGARITHM] if each["name"] == "target_transform" else each["search"]
    found = json.loads(choose_portfolio(json.dumps([{"architecture": "lightgbm", "hyperparameters": declared}]), None))
    assert [config["target_transform"] for config in found["lightgbm"]][:4] == ["none", LOGARITHM, ROOT, "none"]
