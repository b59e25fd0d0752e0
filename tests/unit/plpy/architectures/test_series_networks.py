"""Networks for series: their sizes, that they hop, and what they learn of real digits that are read line by line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from easeml_plpy.architectures import complete
from easeml_plpy.architectures.series.temporal_cnn import KERNEL, n_blocks
from easeml_plpy.columns.task import Task
from easeml_plpy.trainers import ARCHITECTURES, trainer_for
from easeml_plpy.trainers.networks.stack import Pass, train_stacked
from easeml_plpy.trainers.networks.stacked_layers import NotStackable
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from tests.unit.plpy.trainers.training_rows import SERIES_NETWORKS, no_pause, rows

SMALL = {"width": 6, "n_layers": 2, "n_heads": 2, "head_size": 4, "dropout": 0.2, "batch_size": 4}


def start(name: str, task: Task, seed: int = 1, **config: Any) -> TorchTrial:
    live = trainer_for("torch").start(ARCHITECTURES[name], config, task, n_steps_total=200, seed=seed)
    assert isinstance(live, TorchTrial)
    return live


def small(name: str) -> dict[str, Any]:
    known = {each.name for each in ARCHITECTURES[name].hyperparameters}
    return {key: value for key, value in SMALL.items() if key in known}


@pytest.mark.parametrize("name", SERIES_NETWORKS)
@pytest.mark.parametrize("shape", [(1,), (9,), (30, 3), (600, 2)])
def test_networks_fit_the_series_and_their_parameters_are_counted_beforehand(name: str, shape: tuple[int, ...]) -> None:
    chosen, task = ARCHITECTURES[name], Task("classification", shape, 7)
    for config in (complete(chosen, {}), complete(chosen, small(name))):
        module = chosen.build(task, config)
        assert isinstance(module, torch.nn.Module)
        assert module.eval()(torch.zeros(2, *shape)).shape == (2, 7)
        size = chosen.size(task, config)
        assert size.n_parameters == sum(parameter.numel() for parameter in module.parameters())
        assert size.n_outputs_a_row >= math.prod(shape)


@pytest.mark.parametrize("name", SERIES_NETWORKS)
@pytest.mark.parametrize("task", [Task("classification", (5, 2), 3), Task("regression", (6,), 1)])
def test_a_resumed_trial_learns_what_the_whole_one_does(name: str, task: Task) -> None:
    first, second = rows(task, 9), rows(task, 8, seed=1)
    whole = start(name, task, **small(name))
    whole.train(*first, seed=5, pause=no_pause)
    hopped = trainer_for("torch").resume(ARCHITECTURES[name], small(name), task, whole.dump())
    torch.rand(3)
    assert hopped.train(*second, seed=6, pause=no_pause) == whole.train(*second, seed=6, pause=no_pause)
    assert hopped.dump() == whole.dump()
    assert np.array_equal(hopped.outputs(first[0]), whole.outputs(first[0]))


@pytest.mark.parametrize("name", SERIES_NETWORKS)
def test_real_digits_are_told_apart_line_by_line(name: str) -> None:
    """In two passes over 600 digits, at least 30 points better than answering the commonest digit (about 11 %)."""
    digits = load_digits()
    inputs = torch.tensor((digits.images - 4.9) / 6.0, dtype=torch.float32)
    targets = torch.tensor(digits.target)
    live = start(name, Task("classification", (8, 8), 10), batch_size=16, learning_rate=4e-3)
    for seed in range(2):
        live.train(inputs[:600], targets[:600], seed=seed, pause=no_pause)
    right = live.outputs(inputs[1200:]).argmax(axis=1) == digits.target[1200:]
    assert right.mean() > np.bincount(digits.target[1200:]).max() / 597 + 0.3


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "temporal_cnn"])
def test_what_a_network_says_depends_on_the_order_of_steps_and_on_the_first(name: str) -> None:
    task = Task("regression", (20, 1), 1)
    live = start(name, task)
    series = torch.randn(1, 20, 1, generator=torch.Generator().manual_seed(0))
    changed = series.clone()
    changed[0, 0] += 1.0
    said = live.outputs(series)
    assert not np.allclose(said, live.outputs(series.flip(1)), atol=1e-6)
    assert not np.array_equal(said, live.outputs(changed))


@pytest.mark.parametrize("n_steps", [1, 2, 5, 6, 29, 1000])
def test_blocks_of_convolutions_reach_back_to_the_first_step_and_no_further_than_needed(n_steps: int) -> None:
    def reach(blocks: int) -> int:
        return 1 + 2 * (KERNEL - 1) * sum(2**number for number in range(blocks))

    assert reach(n_blocks(n_steps)) >= n_steps
    assert n_blocks(n_steps) == 1 or reach(n_blocks(n_steps) - 1) < n_steps


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_series_are_not_stacked(name: str) -> None:
    task = Task("classification", (5, 2), 3)
    trials = [start(name, task, seed, **small(name)) for seed in range(2)]
    own = [Pass(*rows(task, 8, seed), seed) for seed in range(2)]
    with pytest.raises(NotStackable):
        train_stacked(trials, own, 2, no_pause)
