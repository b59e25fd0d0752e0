"""Networks for series of unequal length: filling them up changes nothing, they hop, and real digits are told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from easeml_plpy.architectures import complete, fits
from easeml_plpy.columns.task import Objects, Task
from easeml_plpy.trainers import ARCHITECTURES, trainer_for
from easeml_plpy.trainers.networks.lengths import N_BATCHES_SORTED, by_length
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from tests.digit_objects import columns, labels
from tests.unit.plpy.architectures.object_rows import field_of, read, task_of
from tests.unit.plpy.trainers.training_rows import SERIES_NETWORKS, no_pause

SMALL = {"width": 6, "n_layers": 2, "n_heads": 2, "head_size": 4, "batch_size": 4}
FIELD = field_of(2, "next")


def start(name: str, task: Task, **config: Any) -> TorchTrial:
    live = trainer_for("torch").start(ARCHITECTURES[name], config, task, n_steps_total=200, seed=1)
    assert isinstance(live, TorchTrial)
    return live


def small(name: str) -> dict[str, Any]:
    known = {each.name for each in ARCHITECTURES[name].hyperparameters}
    return {key: value for key, value in SMALL.items() if key in known}


def series(lengths: list[int]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(length, 2)).tolist() for length in lengths]


@pytest.mark.parametrize("name", SERIES_NETWORKS)
@pytest.mark.parametrize("n_steps", [1, 9, 600])
def test_networks_fit_and_their_parameters_are_counted_beforehand(name: str, n_steps: int) -> None:
    chosen, task = ARCHITECTURES[name], Task("classification", (n_steps, 4), 7, objects=Objects(3, 0))
    assert fits(chosen, task) is None
    for config in (complete(chosen, {}), complete(chosen, small(name))):
        module = chosen.build(task, config)
        assert isinstance(module, torch.nn.Module)
        assert module.eval()(torch.zeros(2, n_steps, 4)).shape == (2, 7)
        assert chosen.size(task, config).n_parameters == sum(each.numel() for each in module.parameters())


@pytest.mark.parametrize("name", SERIES_NETWORKS)
def test_what_fills_a_series_up_changes_no_answer_and_every_step_counts(name: str) -> None:
    rows, field = read(FIELD, series([5, 300, 1, 17]))
    live = start(name, task_of(field, 3), **small(name))
    together = live.outputs(rows)
    for place, length in enumerate([5, 300, 1, 17]):
        np.testing.assert_allclose(live.outputs(rows[place : place + 1])[0], together[place], atol=1e-5)
        changed = rows.clone()
        changed[place, length - 1, 0] += 2.0
        assert not np.allclose(live.outputs(changed)[place], together[place], atol=1e-7)


@pytest.mark.parametrize("name", SERIES_NETWORKS)
def test_a_resumed_trial_learns_what_the_whole_one_does(name: str) -> None:
    rows, field = read(FIELD, series([3, 9, 4, 1, 7, 2, 2, 8, 5]))
    task, targets = task_of(field, 3), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2])
    whole = start(name, task, dropout=0.2, **small(name))
    whole.train(rows, targets, seed=5, pause=no_pause)
    config = {**small(name), "dropout": 0.2}
    hopped = trainer_for("torch").resume(ARCHITECTURES[name], config, task, whole.dump())
    assert hopped.train(rows, targets, seed=6, pause=no_pause) == whole.train(rows, targets, seed=6, pause=no_pause)
    assert hopped.dump() == whole.dump()


@pytest.fixture(scope="module")
def inked() -> tuple[torch.Tensor, Task, float]:
    """Digits as their columns with ink, the task, and what their widths alone tell."""
    given, digits = columns(), labels()
    rows, field = read(field_of(8, "next"), given)
    widths = np.array([[len(each)] for each in given])
    regression = LogisticRegression(max_iter=500).fit(widths[:1200], digits[:1200])
    return rows, task_of(field, 10), regression.score(widths[1200:], digits[1200:])


@pytest.mark.parametrize("name", SERIES_NETWORKS)
def test_real_digits_are_told_apart_by_their_columns_with_ink(
    name: str, inked: tuple[torch.Tensor, Task, float]
) -> None:
    """In two passes over 600 digits, at least 50 points better than what their widths alone tell (about 18 %)."""
    (rows, task, baseline), digits = inked, labels()
    live = start(name, task, batch_size=16, learning_rate=4e-3)
    for seed in range(2):
        live.train(rows[:600], torch.tensor(digits[:600]), seed=seed, pause=no_pause)
    assert (live.outputs(rows[1200:]).argmax(axis=1) == digits[1200:]).mean() > baseline + 0.5


def test_batches_are_of_like_lengths_and_hold_every_row_once() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 1000)
    rows = (torch.arange(100) < torch.from_numpy(lengths)[:, None]).float().unsqueeze(2).repeat(1, 1, 2)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(3))
    found = by_length(order, rows, Objects(1, 0), 8, 3)
    assert torch.equal(found.sort().values, torch.arange(1000))
    assert torch.equal(found, by_length(order, rows, Objects(1, 0), 8, 3))
    assert not torch.equal(found, by_length(order, rows, Objects(1, 0), 8, 4))

    def filled(rows_of: Any) -> int:
        return sum(int(part.max()) * len(part) for part in torch.from_numpy(lengths)[rows_of].split(8))

    assert filled(found) < lengths.sum() * 1.15 < filled(order) / 1.3
    assert N_BATCHES_SORTED * 8 < 1000  # so batches differ from pass to pass


@pytest.mark.parametrize(("name", "links", "message"), [
    ("mlp", 0, "mlp does not take series of unequal size"),
    ("gru", 2, "gru does not take trees of unequal size"),
    ("tree_lstm", 0, "tree_lstm does not take series of unequal size"),
    ("tree_lstm", None, "tree_lstm takes trees"),
])  # fmt: skip
def test_what_does_not_fit_is_said(name: str, links: int | None, message: str) -> None:
    objects = None if links is None else Objects(3, links)
    task = Task("classification", (9, 4 + (links or 0)), 3, objects=objects)
    assert fits(ARCHITECTURES[name], task) == message
