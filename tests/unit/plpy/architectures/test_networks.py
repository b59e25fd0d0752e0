"""Networks for tables: what they make of columns, and how averaging, smoothing and balanced classes train them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from easeml_plpy.architectures import complete
from easeml_plpy.architectures.tables.table_embedding import TableEmbedding
from easeml_plpy.architectures.tables.table_size import MOST_TOKENS, embedded_width
from easeml_plpy.columns.layout import FormColumn, Layout
from easeml_plpy.columns.task import Task
from easeml_plpy.trainers import ARCHITECTURES
from easeml_plpy.trainers.networks import torch_trainer
from easeml_plpy.trainers.networks.torch_trial import AVERAGE, MODULE, with_prefix
from tests.unit.plpy.trainers.training_rows import no_pause

LAYOUT: Layout = (
    FormColumn("number", "a", cardinality=8),
    FormColumn("flag", "a"),
    FormColumn("category", "b", cardinality=3),
    FormColumn("number", "c", cardinality=1),
    FormColumn("number", "d"),
)
WORDS: Layout = tuple(FormColumn("token", "text", str(k), cardinality=2 * MOST_TOKENS) for k in range(6))
TRAINER = torch_trainer.TorchTrainer()
NETWORKS = ["mlp", "resnet", "tabm"]


def table_task(kind: Any, layout: Layout, n_outputs: int) -> Task:
    return Task(kind, (len(layout),), n_outputs, "float32", layout)


def table_rows(n: int, seed: int = 0) -> torch.Tensor:
    """Rows of LAYOUT."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(n, len(LAYOUT), generator=generator)
    numbers[:, 1] = (numbers[:, 1] > 0.8).float()
    numbers[:, 2] = torch.randint(3, (n,), generator=generator).float()
    return numbers


def start(name: str, task: Task, **config: Any) -> Any:
    return TRAINER.start(ARCHITECTURES[name], config, task, n_steps_total=1000, seed=1)


@pytest.mark.parametrize("layout", [LAYOUT, WORDS, LAYOUT + WORDS, LAYOUT[2:3], LAYOUT[:1], LAYOUT[1:2]])
def test_rows_are_embedded_to_the_width_that_is_reckoned(layout: Layout) -> None:
    made = TableEmbedding(layout, 4)(torch.zeros(5, len(layout)))
    assert made.shape == (5, embedded_width(layout, 4))


def test_a_number_becomes_a_function_that_is_linear_between_its_knots() -> None:
    layer = TableEmbedding((FormColumn("number", "a", cardinality=4),), 3)
    with torch.no_grad():
        layer.parts[0].bias.fill_(10.0)  # far from where the activation cuts off
        at = layer(torch.tensor([[0.25], [0.375], [0.5], [0.75]]))
    torch.testing.assert_close(at[1], (at[0] + at[2]) / 2)
    assert not torch.allclose(at[2], (at[0] + at[3]) / 2, atol=1e-3)


def test_tokens_count_alike_wherever_they_stand_and_absent_ones_not_at_all() -> None:
    layer = TableEmbedding(WORDS, 4)
    none = -torch.ones(6)
    short, moved, both, rare = (none.clone() for _ in range(4))
    short[0], moved[4], both[:2], rare[1:3] = 7, 7, torch.tensor([7, 9]), torch.tensor([7, MOST_TOKENS])
    made = layer(torch.stack([short, moved, both, rare, none]))
    torch.testing.assert_close(made[0], made[1])
    torch.testing.assert_close(made[0], made[3])
    assert not torch.allclose(made[0], made[2])
    assert made[4].abs().sum() == 0


def test_a_network_learns_what_single_words_say() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(50, (3000, 6), generator=generator).float()
    targets = ((inputs == 3).any(dim=1) | (inputs == 11).any(dim=1)).long()
    trial = start("mlp", table_task("classification", WORDS, 2), averaging=0.95)
    for seed in range(8):
        trial.train(inputs[:2500], targets[:2500], seed=seed, pause=no_pause)
    answers = torch.from_numpy(trial.outputs(inputs[2500:])).argmax(dim=1)
    assert float((answers == targets[2500:]).float().mean()) > 0.97


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_learn_a_table(name: str) -> None:
    """A function that jumps with a category and bends with a number: a linear model explains half of it."""
    inputs = table_rows(2000)
    targets = (inputs[:, 2] == 1).float() * 2 + torch.sin(9 * inputs[:, 0]) - inputs[:, 4]
    trial = start(name, table_task("regression", LAYOUT, 1), averaging=0.95, batch_size=32, learning_rate=3e-3)
    for seed in range(4):
        trial.train(inputs, targets, seed=seed, pause=no_pause)
    unseen = table_rows(1000, seed=9)
    wanted = (unseen[:, 2] == 1).float() * 2 + torch.sin(9 * unseen[:, 0]) - unseen[:, 4]
    error = torch.from_numpy(trial.outputs(unseen))[:, 0] - wanted
    assert float(error.square().mean() / wanted.var()) < 0.05


@pytest.mark.parametrize("name", NETWORKS)
def test_probabilities_are_of_the_classes(name: str) -> None:
    trial = start(name, table_task("classification", LAYOUT, 3))
    trial.train(table_rows(50), torch.arange(50) % 3, seed=0, pause=no_pause)
    outputs = trial.outputs(table_rows(7))
    assert outputs.shape == (7, 3)
    np.testing.assert_allclose(outputs.sum(axis=1), 1, rtol=1e-5)


def test_the_average_of_the_weights_answers_and_the_last_weights_train_on() -> None:
    task, inputs = table_task("regression", LAYOUT, 1), table_rows(600)
    averaged, plain = start("mlp", task, averaging=0.9), start("mlp", task, averaging=0.0)
    for trial in (averaged, plain):
        trial.train(inputs, inputs[:, 0] * 5, seed=0, pause=no_pause)
    weights, last = averaged.module.state_dict(), plain.module.state_dict()
    assert all(torch.equal(weights[name], last[name]) for name in weights)
    assert not np.array_equal(averaged.outputs(inputs), plain.outputs(inputs))
    assert all(torch.equal(weights[name], last[name]) for name in weights)


def test_a_state_without_averages_goes_on_from_its_weights() -> None:
    task, inputs = table_task("regression", LAYOUT, 1), table_rows(600)
    plain = start("mlp", task, averaging=0.0)
    plain.train(inputs, inputs[:, 0], seed=0, pause=no_pause)
    resumed = TRAINER.resume(ARCHITECTURES["mlp"], complete(ARCHITECTURES["mlp"], {}), task, plain.dump())
    assert np.array_equal(resumed.outputs(inputs), plain.outputs(inputs))
    stored = dict(resumed._tensors())
    parameters = with_prefix(stored, MODULE)
    assert all(torch.equal(parameters[name], average) for name, average in with_prefix(stored, AVERAGE).items())


def test_balanced_classes_let_a_rare_one_be_found() -> None:
    """Every number looks the same, so the best guess is the more frequent class, unless classes weigh alike."""
    inputs, targets = torch.zeros(400, len(LAYOUT)), (torch.arange(400) % 10 == 0).long()
    task = table_task("classification", LAYOUT, 2)
    rare = {}
    for weight in ("none", "balanced"):
        trial = start("mlp", task, class_weight=weight, learning_rate=0.01, averaging=0.0)
        for seed in range(20):
            trial.train(inputs, targets, seed=seed, pause=no_pause)
        rare[weight] = float(trial.outputs(inputs[:1])[0, 1])
    assert abs(rare["none"] - 0.1) < 0.05
    assert abs(rare["balanced"] - 0.5) < 0.1


def test_smoothed_labels_keep_probabilities_from_the_ends() -> None:
    inputs = table_rows(400)
    task, targets = table_task("classification", LAYOUT, 2), (inputs[:, 0] > 0.5).long()
    surest = {}
    for smoothing in (0.0, 0.2):
        trial = start("mlp", task, label_smoothing=smoothing, learning_rate=0.01, averaging=0.0)
        for seed in range(30):
            trial.train(inputs, targets, seed=seed, pause=no_pause)
        surest[smoothing] = float(trial.outputs(inputs).max())
    assert surest[0.2] < 0.95 < surest[0.0]
