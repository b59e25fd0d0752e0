"""Networks for trees: each tree for itself, they hop, and real digits cut into halves of halves are told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from easeml_plpy.architectures import complete, fits
from easeml_plpy.architectures.trees.modules import levels_of
from easeml_plpy.columns.task import Objects, Task
from easeml_plpy.trainers import ARCHITECTURES, trainer_for
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from tests.digit_objects import halves, labels
from tests.unit.plpy.architectures.object_rows import field_of, read, task_of
from tests.unit.plpy.trainers.training_rows import TREE_NETWORKS as FOR_TREES
from tests.unit.plpy.trainers.training_rows import no_pause

TREE_NETWORKS = [name for name in FOR_TREES if ARCHITECTURES[name].trainer == "torch"]
FIELD = field_of(1, "left", "right", name="x")
LEAF, OTHER = {"x": [1.0]}, {"x": [-2.0]}
TREES: list[Any] = [
    LEAF,
    {"x": [0.0], "left": LEAF, "right": OTHER},
    {"x": [0.0], "left": OTHER, "right": LEAF},
    {"x": [0.0], "right": {"x": [3.0], "right": {"x": [1.0], "left": OTHER}}},
]


def start(name: str, task: Task, **config: Any) -> TorchTrial:
    live = trainer_for("torch").start(ARCHITECTURES[name], config, task, n_steps_total=200, seed=1)
    assert isinstance(live, TorchTrial)
    return live


@pytest.mark.parametrize("name", TREE_NETWORKS)
@pytest.mark.parametrize("objects", [Objects(3, 2), Objects(1, 5)])
def test_networks_fit_and_their_parameters_are_counted_beforehand(name: str, objects: Objects) -> None:
    shape = (12, objects.n_numbers + 1 + objects.n_links)
    chosen, task = ARCHITECTURES[name], Task("classification", shape, 7, objects=objects)
    assert fits(chosen, task) is None
    config = complete(chosen, {})
    module = chosen.build(task, config)
    assert isinstance(module, torch.nn.Module)
    assert module.eval()(torch.zeros(2, *shape)).shape == (2, 7)
    size = chosen.size(task, config)
    assert size.n_parameters == sum(each.numel() for each in module.parameters())
    assert size.n_outputs_a_row >= task.n_features


def test_levels_go_up_from_the_leaves_of_every_tree() -> None:
    rows, _ = read(FIELD, TREES)
    found = list(levels_of(rows[:, :, 2:].long(), rows[:, :, 1] > 0))
    width = rows.shape[1]
    assert [level.places.tolist() for level in found] == [
        [0, width + 1, width + 2, 2 * width + 1, 2 * width + 2, 3 * width + 3],
        [width, 2 * width, 3 * width + 2],
        [3 * width + 1],
        [3 * width],
    ]
    assert found[1].children[0].tolist() == [width + 1, width + 2]
    assert found[2].children[0].tolist() == [4 * width, 3 * width + 2]


@pytest.mark.parametrize("name", TREE_NETWORKS)
def test_a_tree_answers_alone_as_among_others_and_left_is_not_right(name: str) -> None:
    rows, field = read(FIELD, TREES)
    live = start(name, task_of(field, 3), width=6)
    together = live.outputs(rows)
    for place in range(len(TREES)):
        np.testing.assert_allclose(live.outputs(rows[place : place + 1])[0], together[place], atol=1e-6)
    assert not np.allclose(together[1], together[2], atol=1e-6)
    changed = rows.clone()
    changed[3, 3, 0] += 2.0  # the deepest leaf
    assert not np.allclose(live.outputs(changed)[3], together[3], atol=1e-7)


@pytest.mark.parametrize("name", TREE_NETWORKS)
def test_a_resumed_trial_learns_what_the_whole_one_does(name: str) -> None:
    rows, field = read(FIELD, TREES * 2)
    task, targets = task_of(field, 2), torch.tensor([0, 1, 0, 1, 1, 0, 1, 0])
    config = {"width": 5, "dropout": 0.2, "batch_size": 3}
    whole = start(name, task, **config)
    whole.train(rows, targets, seed=5, pause=no_pause)
    hopped = trainer_for("torch").resume(ARCHITECTURES[name], config, task, whole.dump())
    assert hopped.train(rows, targets, seed=6, pause=no_pause) == whole.train(rows, targets, seed=6, pause=no_pause)
    assert hopped.dump() == whole.dump()


def n_objects(tree: dict[str, Any]) -> int:
    return 1 + sum(n_objects(tree[side]) for side in ("first", "second") if side in tree)


@pytest.fixture(scope="module")
def halved() -> tuple[torch.Tensor, Task, float]:
    """Digits as trees, the task, and what the sizes of the trees tell."""
    given, digits = halves(1200), labels()[:1200]
    rows, field = read(field_of(2, "first", "second", name="ink"), given)
    sizes = np.array([[n_objects(each)] for each in given])
    regression = LogisticRegression(max_iter=500).fit(sizes[:800], digits[:800])
    return rows, task_of(field, 10), regression.score(sizes[800:], digits[800:])


@pytest.mark.parametrize("name", TREE_NETWORKS)
def test_real_digits_are_told_apart_by_their_halves_of_halves(
    name: str, halved: tuple[torch.Tensor, Task, float]
) -> None:
    """In two passes over 800 digits, at least 20 points better than what the sizes of trees tell (about 22 %)."""
    (rows, task, baseline), digits = halved, labels()[:1200]
    live = start(name, task, batch_size=16, learning_rate=5e-3)
    for seed in range(2):
        live.train(rows[:800], torch.tensor(digits[:800]), seed=seed, pause=no_pause)
    assert (live.outputs(rows[800:]).argmax(axis=1) == digits[800:]).mean() > baseline + 0.2
