"""Networks whose outputs are tensors: their sizes, that they hop, and what they make of real digits."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from easeml_plpy.architectures import complete, fits
from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.metrics import measure, values
from easeml_plpy.trainers import ARCHITECTURES, trainer_for
from easeml_plpy.trainers.contract import AnsweringTrial
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from tests.unit.plpy.trainers.training_rows import TENSOR_NETWORKS, no_pause

PICTURES = ["autoencoder", "unet", "gan", "pix2pix"]
LEARNING = {"autoencoder": (1200, 3e-3), "gan": (1200, 3e-3), "seq2seq": (600, 6e-3)}
"""How many digits a network learns from, and how fast: more, where all that goes in passes through a few numbers."""
SMALL = {"n_maps": 3, "n_levels": 2, "width": 6, "hidden_units": [7], "batch_size": 4}


def task_of(given: tuple[int, ...], wanted: tuple[int, ...]) -> Task:
    return Task("regression", given, math.prod(wanted), output_shape=wanted, output_range=(0.0, 16.0))


def small(name: str) -> dict[str, Any]:
    known = {each.name for each in ARCHITECTURES[name].hyperparameters}
    return {key: value for key, value in SMALL.items() if key in known}


def start(name: str, task: Task, n_steps: int = 200, **config: Any) -> TorchTrial:
    chosen = ARCHITECTURES[name]
    live = trainer_for(chosen.trainer).start(chosen, config, task, n_steps_total=n_steps, seed=1)
    assert isinstance(live, TorchTrial)
    return live


SHAPES = [
    *((name, given, wanted) for name in PICTURES for given, wanted in [
        ((8, 8, 1), (8, 8, 1)), ((8, 8), (8, 8)), ((16, 9, 3), (8, 12, 1)), ((3, 20, 20), (1, 33, 21)),
        ((4, 4), (5, 4)),
    ]),
    *(("seq2seq", given, wanted) for given, wanted in [((4, 8), (4, 8)), ((9, 1), (2, 3)), ((1, 2), (5, 1))]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "wanted"), SHAPES)
def test_networks_fit_both_shapes_and_their_parameters_are_counted_beforehand(
    name: str, given: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    chosen, task = ARCHITECTURES[name], task_of(given, wanted)
    assert fits(chosen, task) is None
    for config in (complete(chosen, {}), complete(chosen, small(name))):
        module = chosen.build(task, config)
        assert isinstance(module, torch.nn.Module)
        assert module.eval()(torch.zeros(2, *given)).shape == (2, task.n_outputs)
        size = chosen.size(task, config)
        assert size.n_parameters == sum(parameter.numel() for parameter in module.parameters())
        assert size.n_outputs_a_row >= task.n_features


@pytest.mark.parametrize("name", [*TENSOR_NETWORKS, "mlp", "linear"])
def test_a_resumed_trial_learns_what_the_whole_one_does(name: str) -> None:
    task = task_of((6, 5), (4, 7))
    generator = torch.Generator().manual_seed(0)
    first, second = ((torch.randn(9, 6, 5, generator=generator), torch.randn(9, 28, generator=generator)) for _ in "ab")
    whole = start(name, task, **small(name))
    whole.train(*first, seed=5, pause=no_pause)
    hopped = trainer_for(ARCHITECTURES[name].trainer).resume(ARCHITECTURES[name], small(name), task, whole.dump())
    assert hopped.train(*second, seed=6, pause=no_pause) == whole.train(*second, seed=6, pause=no_pause)
    assert hopped.dump() == whole.dump()
    assert np.array_equal(hopped.outputs(first[0]), whole.outputs(first[0]))


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ("lenet", task_of((8, 8), (8, 8)), "lenet returns classes or one number, not tensors"),
        ("unet", Task("regression", (8, 8), 1), "unet returns tensors, not classes or one number"),
        ("unet", task_of((8, 8), (2, 2, 2, 2)), r"unet returns pictures, not \[2, 2, 2, 2\]"),
        ("unet", task_of((3, 8), (8, 8)), "at least 4 by 4"),
        ("seq2seq", task_of((3, 8), (8, 8, 1)), "seq2seq returns series"),
        ("seq2seq", task_of((3, 8), (5000, 8)), "at most 2000 steps"),
    ],
)
def test_what_does_not_fit_is_said(name: str, task: Task, message: str) -> None:
    assert re.search(message, fits(ARCHITECTURES[name], task) or "")


def digits() -> np.ndarray[Any, Any]:
    images: np.ndarray[Any, Any] = load_digits().images
    return images


def learned(name: str, given: Any, wanted: Any, shape: tuple[int, ...], n_passes: int) -> Any:
    """Train on the first 450 digits, or more, and return metrics of the last 597."""
    n_rows, learning_rate = LEARNING.get(name, (450, 6e-3))
    task = task_of(given.shape[1:], shape)
    inputs = torch.tensor((given - 4.9) / 6.0, dtype=torch.float32)
    targets = torch.tensor((wanted.reshape(len(wanted), -1) - 4.9) / 6.0, dtype=torch.float32)
    n_steps = n_passes * math.ceil(n_rows / 16)
    live: AnsweringTrial = start(name, task, n_steps, batch_size=16, learning_rate=learning_rate)
    for seed in range(n_passes):
        live.train(inputs[:n_rows], targets[:n_rows], seed=seed, pause=no_pause)  # type: ignore[attr-defined]
    outputs = live.outputs(inputs[1200:]) * 6.0 + 4.9
    return values(task, measure(task, outputs, wanted[1200:].reshape(597, -1)))


def rmse(outputs: Any, wanted: Any) -> float:
    return float(np.sqrt(np.mean((outputs - wanted) ** 2)))


@pytest.mark.parametrize("name", [*PICTURES, "mlp"])
def test_noise_is_taken_off_real_digits(name: str) -> None:
    """At least a quarter less error than copying the noisy digit, and than the mean digit."""
    clean = digits()[..., None]
    noisy = clean + np.random.default_rng(0).normal(0, 5, clean.shape)
    found = learned(name, noisy, clean, (8, 8, 1), 3)
    assert found["rmse"] < 0.75 * min(rmse(noisy[1200:], clean[1200:]), rmse(clean[:1200].mean(0), clean[1200:]))
    assert found["psnr"] == pytest.approx(20 * math.log10(16 / found["rmse"]))
    assert 0.4 < found["ssim"] < 1


@pytest.mark.parametrize("name", ["autoencoder", "unet", "pix2pix"])  # what a gan answers with is an autoencoder
def test_the_middle_of_real_digits_is_painted_in(name: str) -> None:
    """At least a third less error than copying the digit with its hole, and a tenth less than the mean of its hole."""
    clean = digits()[..., None]
    holed = clean.copy()
    holed[:, 2:6, 2:6] = 0
    found = learned(name, holed, clean, (8, 8, 1), 4)
    filled = holed.copy()
    filled[:, 2:6, 2:6] = clean[:1200, 2:6, 2:6].mean(0)
    assert found["rmse"] < 0.66 * rmse(holed[1200:], clean[1200:])
    assert found["rmse"] < 0.9 * rmse(filled[1200:], clean[1200:])


@pytest.mark.parametrize("name", ["seq2seq", "mlp"])
def test_the_lower_half_of_real_digits_follows_from_the_upper(name: str) -> None:
    """Lines as steps: an eighth less error than the mean lower half, and darkest places of lines more often right."""
    upper, lower = digits()[:, :4], digits()[:, 4:]
    found = learned(name, upper, lower, (4, 8), 6)
    mean = lower[:1200].mean(0)
    assert found["rmse"] < 0.875 * rmse(mean, lower[1200:])
    guessed = (mean.argmax(-1) == lower[1200:].argmax(-1)).mean()
    assert found["token_accuracy"] > guessed + 0.05


ADVERSARIES = ["gan", "pix2pix"]


def adversaries(name: str, **config: Any) -> tuple[TorchTrial, Any, torch.Tensor, torch.Tensor]:
    live = start(name, task_of((8, 8, 1), (8, 8, 1)), **{**small(name), **config})
    pictures = torch.tensor((digits()[:12, ..., None] - 4.9) / 6.0, dtype=torch.float32)
    return live, live.module, pictures.flip(1), pictures.flatten(1)


@pytest.mark.parametrize("name", ADVERSARIES)
def test_both_networks_train_each_with_slots_of_its_own_and_one_state_holds_all(name: str) -> None:
    live, module, given, wanted = adversaries(name)
    before = {key: value.clone() for key, value in module.named_parameters()}
    live.train(given, wanted, seed=1, pause=no_pause)
    changed = {key for key, value in module.named_parameters() if not torch.equal(value, before[key])}
    assert changed == set(before)
    assert {key.partition(".")[0] for key in before} == {"generator", "critic"}
    counts = [int(slots["step"]) for slots in live.optimizer_slots()]
    assert counts == [3] * len(before)  # twelve rows in batches of four


@pytest.mark.parametrize("name", ADVERSARIES)
def test_what_trains_the_critic_gives_the_generator_nothing_and_the_other_way_round(name: str) -> None:
    live, module, given, wanted = adversaries(name)
    live.begin_pass(wanted, 1)
    before = {key: value.clone() for key, value in module.named_parameters()}
    live.gradients(module, given, wanted, 1.0)  # the critic's step is done, and the generator's is to come
    changed = {key for key, value in module.named_parameters() if not torch.equal(value, before[key])}
    assert changed == {key for key in before if key.startswith("critic.")}
    assert all(parameter.grad is None for parameter in module.critic.parameters())
    assert all(parameter.grad is not None for parameter in module.generator.parameters())


@pytest.mark.parametrize("name", ADVERSARIES)
def test_a_critic_learns_to_tell_real_digits_from_those_that_a_new_generator_makes(name: str) -> None:
    """Real ones around 1 and others around 0: apart by more than a half, where one who guesses puts them together."""
    live, module, given, wanted = adversaries(name, n_maps=16, learning_rate=1e-2)
    module.generator.requires_grad_(False)
    for _ in range(60):
        real, fake = module.judged(given, wanted), module.judged(given, module.generator(given))
        ((real - 1) ** 2).mean().add((fake**2).mean()).backward()
        live.apply_gradients()
    real, fake = module.judged(given, wanted), module.judged(given, module.generator(given))
    assert float((real.mean() - fake.mean()).detach()) > 0.5
