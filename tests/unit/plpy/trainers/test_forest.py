"""Forests: live or resumed the same bytes, the answers of scikit-learn's own trees, and walks that always end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import CorruptCheckpoint, NotReady
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers import architecture, trainer_for
from easeml_plpy.trainers.contract import WholeTrial
from easeml_plpy.trainers.forests.rows import constants_of, fill_of
from easeml_plpy.trainers.forests.tree_arrays import trees_of
from easeml_plpy.trainers.forests.trial import ForestTrial
from tests.unit.plpy.trainers.test_lightgbm import LAYOUT, TASKS, inputs_of, score, targets_of
from tests.unit.plpy.trainers.training_rows import no_pause

TRAINER = trainer_for("forest")
NAMES = ("extra_trees", "random_forest")
FEW = {"trees_per_epoch": 4}


def start(task: Task, name: str = "extra_trees", **config: Any) -> ForestTrial:
    live = TRAINER.start(architecture(name), FEW | config, task, n_steps_total=1, seed=0)
    assert isinstance(live, ForestTrial)
    assert isinstance(live, WholeTrial)
    return live


def resume(task: Task, state: bytes, name: str = "extra_trees", **config: Any) -> ForestTrial:
    live = TRAINER.resume(architecture(name), FEW | config, task, state)
    assert isinstance(live, ForestTrial)
    return live


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.kind}{task.n_outputs}")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weight", ["none", "balanced"])
def test_resumed_before_every_epoch_a_forest_comes_to_the_same_bytes(task: Task, name: str, weight: str) -> None:
    inputs = inputs_of()
    targets = targets_of(task, inputs)
    live, state = start(task, name, class_weight=weight), None
    for epoch in range(3):
        training = live.train(inputs, targets, seed=epoch, pause=no_pause)
        kept = live.all_outputs(inputs, no_pause)
        fresh = state is None
        other = start(task, name, class_weight=weight) if fresh else resume(task, state, name, class_weight=weight)
        other.train(inputs.clone(), targets, seed=epoch, pause=no_pause)
        state = other.dump()
        assert state == live.dump()
        assert np.array_equal(kept, other.outputs(inputs))
        assert (training.n_rows, training.n_steps) == (len(inputs), 4)
    assert score(task, kept, targets) > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_rows_walk_through_the_arrays_as_through_the_trees_of_scikit_learn(name: str) -> None:
    from sklearn import tree

    kinds = {"extra_trees": tree.ExtraTreeRegressor, "random_forest": tree.DecisionTreeRegressor}
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(500, 3)).astype(np.float32).round(2)
    rows[:, 1] = np.nextafter(np.float32(1), np.float32(2)) * rng.integers(0, 2, 500) + rng.integers(0, 2, 500)
    wanted = rows[:, 0] * 2 + rows[:, 1]
    grown = [kinds[name](random_state=k).fit(rows, wanted) for k in range(3)]
    sums = np.zeros((500, 1))
    trees_of(grown, 1).add_sums(rows, sums, no_pause)
    expected = sum(each.predict(rows).astype(np.float32).astype(np.float64) for each in grown)
    assert sums[:, 0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_is_grown_from_so_many_rows_at_most(name: str) -> None:
    task = Task("regression", (1,), 1, "float64")
    inputs = torch.arange(400, dtype=torch.float64)[:, None]
    live = start(task, name, max_samples=30, min_samples_leaf=1)
    live.train(inputs, inputs[:, 0].float(), seed=1, pause=no_pause)
    n_leaves = len(checkpoint.load(live.dump()).tensors["000000/values"])
    assert 4 * 15 <= n_leaves <= 4 * 30
    assert score(task, live.outputs(inputs), inputs[:, 0]) > 0.9, "the rows are drawn from all of them"


@pytest.mark.parametrize("name", NAMES)
def test_what_training_never_saw_and_missing_numbers_have_finite_answers(name: str) -> None:
    task = TASKS[0]
    inputs = inputs_of()
    live = start(task, name)
    live.train(inputs, targets_of(task, inputs), seed=0, pause=no_pause)
    nan = float("nan")
    odd = torch.tensor([[1e300, -1e300, 0, 1], [nan, nan, nan, nan], [0, 0, 0, 5]], dtype=torch.float64)
    assert np.isfinite(live.outputs(odd)).all()


def test_a_missing_number_is_less_than_all_and_a_column_without_any_number_is_nothing() -> None:
    nan = np.nan
    rows = np.array([[1.0, nan, 5.0, -3e38], [2.0, nan, 5.0, 3e38], [nan, nan, nan, nan]], np.float32)
    fill = fill_of(rows)
    assert fill[0] < 1
    assert fill[1] == 0
    assert fill[2] < 5
    assert np.isfinite(fill).all()
    assert fill[3] <= rows[0, 3]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weight", ["none", "balanced"])
def test_classes_that_training_does_not_have_get_no_probability(name: str, weight: str) -> None:
    task = Task("classification", (4,), 5, "float64", LAYOUT)
    inputs = inputs_of(200)
    live = start(task, name, class_weight=weight)
    live.train(inputs, torch.full((200,), 3), seed=0, pause=no_pause)
    outputs = resume(task, live.dump(), name).outputs(inputs)
    assert outputs.argmax(axis=1).tolist() == [3] * 200
    assert outputs.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("name", NAMES)
def test_trees_whose_rows_lack_a_rare_class_say_nothing_of_it_and_mix_up_no_others(name: str) -> None:
    """Each tree is grown from some rows: those of one may have other classes than those of the next."""
    task, inputs = Task("classification", (4,), 4, "float64", LAYOUT), inputs_of(400)
    targets = torch.where(inputs[:, 3] == 2, 3, 1)
    targets[:2] = torch.tensor([0, 2])
    live = start(task, name, max_samples=60, trees_per_epoch=30)
    live.train(inputs, targets, seed=0, pause=no_pause)
    outputs = resume(task, live.dump(), name).outputs(inputs)
    assert outputs.sum(axis=1) == pytest.approx(1)
    assert (outputs[2:].argmax(axis=1) == targets[2:].numpy()).mean() > 0.9
    assert (outputs[2:, [0, 2]] < 0.3).all()


def test_a_pause_that_raises_leaves_the_state_and_untrained_trials_say_so() -> None:
    task, inputs = TASKS[0], inputs_of()
    targets = targets_of(task, inputs)
    live = start(task)
    with pytest.raises(NotReady):
        live.outputs(inputs)
    assert live.train(inputs[:0], targets[:0], seed=0, pause=no_pause).n_rows == 0
    live.train(inputs, targets, seed=0, pause=no_pause)
    state = live.dump()

    def cancel() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        live.train(inputs, targets, seed=1, pause=cancel)
    assert live.dump() == state


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [("link", 0, 0), ("link", 0, 10**6), ("link", -1, 10**6), ("feature", 0, 99), ("roots", 0, -1), ("feature", -1, 0)],
)
def test_a_state_whose_trees_lead_nowhere_is_refused(name: str, index: int, value: int) -> None:
    task, inputs = TASKS[0], inputs_of()
    live = start(task)
    live.train(inputs, targets_of(task, inputs), seed=0, pause=no_pause)
    state = checkpoint.load(live.dump())
    state.tensors[f"000000/{name}"][index] = value
    with pytest.raises(CorruptCheckpoint, match="nowhere"):
        resume(task, checkpoint.dump(state.tensors, state.attributes))


def test_categories_stand_in_the_order_of_their_targets_and_unknown_ones_in_the_middle() -> None:
    codes = torch.tensor([[0.0], [1.0], [2.0], [float("nan")]]).repeat(200, 1).double()
    numbers = torch.zeros(800, 3, dtype=torch.float64)
    inputs = torch.cat([numbers, codes], dim=1)
    targets = np.tile([5.0, -5.0, 1.0, 0.0], 200)
    constants = constants_of(TASKS[0], inputs, targets)
    asked = torch.tensor([[0, 0, 0, code] for code in (1.0, 2.0, 0.0, 5.0)], dtype=torch.float64)
    assert constants.rows(asked)[:, 3].tolist() == [0, 1, 2, 1]
    assert constants.rows(inputs[3:4])[0, 3] < 0


def test_a_state_without_its_columns_is_refused() -> None:
    task, inputs = TASKS[0], inputs_of()
    live = start(task)
    live.train(inputs, targets_of(task, inputs), seed=0, pause=no_pause)
    state = checkpoint.load(live.dump())
    kept = {name: tensor for name, tensor in state.tensors.items() if name != "columns/3"}
    with pytest.raises(CorruptCheckpoint, match="constants"):
        resume(task, checkpoint.dump(kept, state.attributes))
