"""Boosted trees: live, resumed or with nothing kept, the same bytes; odd rows and odd classes have defined answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from easeml_plpy.architectures import complete
from easeml_plpy.catalogue.config_memory import needed_bytes
from easeml_plpy.columns.layout import FormColumn
from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.metrics import measure, values
from easeml_plpy.server.errors import CorruptCheckpoint, NotReady, ShapeMismatch
from easeml_plpy.server.value_types import Array
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers import architecture, trainer_for, trainer_of
from easeml_plpy.trainers.contract import WholeTrial
from easeml_plpy.trainers.lightgbm import boosters
from easeml_plpy.trainers.lightgbm.trial import LightGBMTrial
from tests.unit.plpy.trainers.training_rows import no_pause

N_ROWS, N_COLUMNS = 900, 4
LAYOUT = (*(FormColumn("number", f"c{k}") for k in range(3)), FormColumn("category", "c3", cardinality=6))
LIGHTGBM = architecture("lightgbm")
TRAINER = trainer_for("boosting")
FEW = {"trees_per_epoch": 8, "num_leaves": 7, "bagging_fraction": 0.7, "feature_fraction": 0.8}
TASKS = [Task("regression", (4,), 1, "float64", LAYOUT)]
TASKS += [Task("classification", (4,), k, "float64", LAYOUT) for k in (2, 3)]


def inputs_of(n_rows: int = N_ROWS) -> torch.Tensor:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(n_rows, N_COLUMNS))
    rows[:, 3] = rng.integers(0, 5, n_rows)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    return torch.from_numpy(rows)


def targets_of(task: Task, inputs: torch.Tensor) -> torch.Tensor:
    wanted = np.nan_to_num(inputs[:, 0].numpy()) + 2 * (inputs[:, 3].numpy() == 2)
    if task.kind == "regression":
        return torch.from_numpy(wanted.astype(np.float32))
    return torch.from_numpy(np.digitize(wanted, [0.0, 1.0][: task.n_outputs - 1]).astype(np.int64))


def start(task: Task, config: dict[str, Any]) -> LightGBMTrial:
    live = TRAINER.start(LIGHTGBM, config, task, n_steps_total=1, seed=0)
    assert isinstance(live, LightGBMTrial)
    assert isinstance(live, WholeTrial)
    return live


def resume(task: Task, config: dict[str, Any], state: bytes) -> LightGBMTrial:
    live = TRAINER.resume(LIGHTGBM, config, task, state)
    assert isinstance(live, LightGBMTrial)
    return live


def score(task: Task, outputs: Array, targets: torch.Tensor) -> float:
    measured = values(task, measure(task, outputs, targets.numpy()))
    return measured["r2" if task.kind == "regression" else "accuracy"]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.kind}{task.n_outputs}")
@pytest.mark.parametrize("config", [FEW, FEW | {"class_weight": "balanced", "max_depth": 3}], ids=["plain", "balanced"])
def test_resumed_before_every_epoch_a_trial_comes_to_the_same_bytes(task: Task, config: dict[str, Any]) -> None:
    inputs = inputs_of()
    targets = targets_of(task, inputs)
    live, state = start(task, config), None
    for epoch in range(3):
        live.train(inputs, targets, seed=epoch, pause=no_pause)
        kept = live.all_outputs(inputs, no_pause)
        other = start(task, config) if state is None else resume(task, config, state)
        other.train(inputs.clone(), targets, seed=epoch, pause=no_pause)
        state = other.dump()
        assert state == live.dump()
        assert np.array_equal(kept, other.outputs(inputs))
    assert score(task, kept, targets) > 0.8
    assert len(checkpoint.load(live.dump()).tensors) == 3


def test_a_trial_that_comes_back_adds_only_the_trees_that_came_since(monkeypatch: pytest.MonkeyPatch) -> None:
    task, here, elsewhere = TASKS[1], inputs_of(), inputs_of()
    targets = targets_of(task, here)
    added: list[int] = []
    for name in ("add_trees", "add_sums"):
        monkeypatch.setattr(boosters, name, counted(getattr(boosters, name), added))
    live = start(task, FEW)
    for epoch, rows in enumerate((here, here, elsewhere, here)):
        live = resume(task, FEW, live.dump()) if epoch else live  # another session, or the same again
        added.clear()
        live.train(rows, targets, seed=epoch, pause=no_pause)
        n_trained = len(added)
        answers = live.all_outputs(rows, no_pause)
        assert (n_trained, len(added) - n_trained) == [(0, 1), (0, 1), (2, 3), (1, 2)][epoch]
    assert np.array_equal(resume(task, FEW, live.dump()).outputs(here), answers)


def counted(function: Any, calls: list[int]) -> Any:
    def call(*arguments: Any) -> Any:
        calls.append(1)
        return function(*arguments)

    return call


def test_other_seeds_and_threads_are_told_apart_by_the_bytes_and_not_by_what_is_kept() -> None:
    task, inputs = TASKS[0], inputs_of()
    targets = targets_of(task, inputs)
    states = []
    for seed in (1, 1, 2):
        live = start(task, FEW)
        live.train(inputs, targets, seed=seed, pause=no_pause)
        states.append(live.dump())
    assert states[0] == states[1] != states[2]


def test_trials_with_other_settings_share_rows_and_not_their_margins() -> None:
    task, inputs = TASKS[0], inputs_of()
    targets = targets_of(task, inputs)
    lives = [start(task, FEW | {"learning_rate": rate}) for rate in (0.05, 0.3)]
    for epoch in range(2):
        for live in lives:
            live.train(inputs, targets, seed=epoch, pause=no_pause)
            live.all_outputs(inputs, no_pause)
    for live, rate in zip(lives, (0.05, 0.3), strict=True):
        alone = start(task, FEW | {"learning_rate": rate})
        for epoch in range(2):
            alone.train(inputs.clone(), targets, seed=epoch, pause=no_pause)
        assert alone.dump() == live.dump()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.kind}{task.n_outputs}")
def test_what_training_never_saw_has_a_finite_answer(task: Task) -> None:
    inputs = inputs_of()
    live = start(task, FEW)
    live.train(inputs, targets_of(task, inputs), seed=0, pause=no_pause)
    nan = float("nan")
    odd = torch.tensor([[1e300, -1e300, 0, 1], [nan, nan, nan, nan], [0, 0, 0, 5], [0, 0, 0, 2]], dtype=torch.float64)
    outputs = live.outputs(odd)
    assert outputs.shape == (4, task.n_outputs)
    assert np.isfinite(outputs).all()
    if task.kind == "classification":
        assert outputs.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("weight", ["none", "balanced"])
def test_one_class_after_a_split_is_learned_and_no_other_is_impossible(n_classes: int, weight: str) -> None:
    task = Task("classification", (4,), n_classes, "float64", LAYOUT)
    inputs = inputs_of(200)
    live = start(task, FEW | {"class_weight": weight})
    for epoch in range(2):
        training = live.train(inputs, torch.ones(200, dtype=torch.int64), seed=epoch, pause=no_pause)
        assert training.loss_mean < 0.1
    outputs = live.outputs(inputs)
    assert (outputs.argmax(axis=1) == 1).all()
    assert (outputs > 0).all()


def test_a_class_that_only_other_rows_have_is_improbable_and_measured() -> None:
    task = Task("classification", (4,), 4, "float64", LAYOUT)
    inputs = inputs_of()
    targets = targets_of(TASKS[2], inputs)
    live = start(task, FEW)
    live.train(inputs, targets, seed=0, pause=no_pause)
    outputs = live.outputs(inputs)
    assert (outputs[:, 3] > 0).all()
    assert (outputs[:, 3] < 0.01).all()


def test_balanced_classes_find_more_of_a_rare_one() -> None:
    task, inputs = TASKS[1], inputs_of(2000)
    rng = np.random.default_rng(3)
    rare = torch.from_numpy((np.nan_to_num(inputs[:, 0].numpy()) + rng.normal(size=2000) > 2.3).astype(np.int64))
    found = []
    for weight in ("none", "balanced"):
        live = start(task, FEW | {"class_weight": weight, "min_data_in_leaf": 40})
        live.train(inputs, rare, seed=0, pause=no_pause)
        found.append(int(live.outputs(inputs).argmax(axis=1).sum()))
    assert found[1] > 2 * found[0]


def test_trials_that_share_rows_do_not_share_the_weights_of_their_classes() -> None:
    task, inputs = TASKS[1], inputs_of()
    targets = targets_of(task, inputs)

    def trained(weight: str) -> bytes:
        live = start(task, FEW | {"class_weight": weight})
        live.train(inputs, targets, seed=0, pause=no_pause)
        return live.dump()

    alone = trained("none")
    assert trained("balanced") != alone
    assert trained("none") == alone


def test_a_pause_that_raises_ends_the_epoch_and_leaves_the_state() -> None:
    task, inputs = TASKS[0], inputs_of()
    targets = targets_of(task, inputs)
    live = start(task, FEW)
    live.train(inputs, targets, seed=0, pause=no_pause)
    state, calls = live.dump(), [0]

    def cancel() -> None:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        live.train(inputs, targets, seed=1, pause=cancel)
    assert live.dump() == state


def test_no_rows_untrained_trials_wrong_shapes_and_damaged_states_are_told() -> None:
    task, inputs = TASKS[0], inputs_of()
    live = start(task, FEW)
    assert live.train(inputs[:0], targets_of(task, inputs)[:0], seed=0, pause=no_pause).n_rows == 0
    with pytest.raises(NotReady):
        live.outputs(inputs)
    with pytest.raises(ShapeMismatch):
        live.outputs(inputs[:, :3])
    live.train(inputs, targets_of(task, inputs), seed=0, pause=no_pause)
    state = checkpoint.load(live.dump())
    damaged = {name: tensor[: len(tensor) // 2] for name, tensor in state.tensors.items()}
    other = resume(task, FEW, checkpoint.dump(damaged, state.attributes))
    with pytest.raises(CorruptCheckpoint):
        other.outputs(inputs)
    with pytest.raises(CorruptCheckpoint, match="margins"):
        resume(task, FEW, checkpoint.dump(state.tensors, state.attributes | {"base": [0.0, 1.0]}))


def test_memory_is_reckoned_from_rows_columns_and_leaves() -> None:
    def needed(n_rows: int, **config: int) -> int:
        return needed_bytes(LIGHTGBM, TASKS[0], complete(LIGHTGBM, config), [n_rows])

    assert TRAINER.rows_at_once((10, 20, 30)) == 60
    assert trainer_of("mlp").rows_at_once((10, 20, 30)) == 30
    assert needed(10**6) > 10**6 * 4 * 9
    assert needed(1000, num_leaves=4096, trees_per_epoch=10_000) > 4 * 10**9


def test_the_answer_never_decreases_where_it_must_not_and_inputs_apart_never_act_together() -> None:
    rng = np.random.default_rng(4)
    rows = np.column_stack([rng.uniform(-1, 1, (2000, 3)), rng.integers(0, 5, 2000)])
    inputs, task = torch.from_numpy(rows), TASKS[0]
    targets = torch.from_numpy((np.sin(4 * rows[:, 0]) + rows[:, 1] * rows[:, 2]).astype(np.float32))
    grid = np.tile([[0.0, 0.3, -0.4, 1.0]], (50, 1))
    grid[:, 0] = np.linspace(-1, 1, 50)
    config = {"trees_per_epoch": 30, "increasing": ["c0"], "interactions": [["c1", "c3"]]}
    live = start(task, config)
    live.train(inputs, targets, seed=0, pause=no_pause)
    assert (np.diff(live.outputs(torch.from_numpy(grid))[:, 0]) >= 0).all()
    corners = np.array([[0.0, x, y, 1.0] for x in (-0.5, 0.5) for y in (-0.5, 0.5)])
    low, *mixed, high = live.outputs(torch.from_numpy(corners))[:, 0].tolist()
    assert low + high == pytest.approx(sum(mixed), abs=1e-5)  # c1 and c2 are only added up
    free = start(task, {"trees_per_epoch": 30})
    free.train(inputs, targets, seed=0, pause=no_pause)
    assert (np.diff(free.outputs(torch.from_numpy(grid))[:, 0]) < 0).any()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"increasing": ["nothing"]}, "no input 'nothing'; the inputs are c0, c1, c2, c3"),
        ({"interactions": [["c0", "gone"]]}, "no input 'gone'"),
        ({"decreasing": ["c3"]}, "c3 is no single number"),
        ({"increasing": ["c1"], "decreasing": ["c1"]}, "both increase and decrease with c1"),
    ],
)
def test_constraints_on_inputs_that_are_not_there_or_cannot_have_them_are_refused(config: Any, words: str) -> None:
    assert words in (LIGHTGBM.config_objection(TASKS[0], complete(LIGHTGBM, config)) or "")
    assert LIGHTGBM.config_objection(TASKS[0], complete(LIGHTGBM, {"increasing": ["c0"]})) is None
    three = complete(LIGHTGBM, {"increasing": ["c0"]})
    assert "more than two classes" in (LIGHTGBM.config_objection(TASKS[2], three) or "")
