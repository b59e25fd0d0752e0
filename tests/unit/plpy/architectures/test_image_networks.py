"""Networks for images: their sizes, what they learn of real digits, and random numbers that a replay draws again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from easeml_plpy.architectures import complete, fits
from easeml_plpy.architectures.images.augmentation import Crop, Flip, Normalise
from easeml_plpy.architectures.images.pictures import Picture, picture_of
from easeml_plpy.catalogue.config_memory import shortage
from easeml_plpy.columns.encoder import Encoder, LabelTarget, TensorField
from easeml_plpy.columns.task import Task
from easeml_plpy.row_forms import row_form_of, task_in
from easeml_plpy.trainers import ARCHITECTURES, trainer_for
from easeml_plpy.trainers.networks.stack import Pass, train_stacked
from easeml_plpy.trainers.networks.stacked_layers import NotStackable
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from tests.unit.plpy.trainers.training_rows import IMAGE_NETWORKS, no_pause, rows

NETWORKS = [name for name in IMAGE_NETWORKS if name != "lenet"]
PHOTOGRAPHS = Task("classification", (224, 224, 3), 1000)
LEARNING: dict[str, dict[str, Any]] = {
    "squeezenet": {"width": 1.0, "learning_rate": 2e-3, "dropout": 0.0},
    "googlenet": {"batch_size": 32, "learning_rate": 5e-3},
    "resnet18": {"width": 0.25, "batch_size": 32, "learning_rate": 5e-3},
    "resnet50": {"width": 0.25, "batch_size": 32, "learning_rate": 5e-3},
}
"""What a network needs to learn in few steps: one without batch normalisation or wide layers, and the deepest ones."""
DRAWN = {"flip": "both", "crop": 2, "normalization": "0.4"}


def start(name: str, task: Task, seed: int = 1, **config: Any) -> TorchTrial:
    live = trainer_for("torch").start(ARCHITECTURES[name], config, task, n_steps_total=200, seed=seed)
    assert isinstance(live, TorchTrial)
    return live


# Sizes


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((28, 30), Picture(1, 28, 30, is_flat=True)),
        ((3, 32, 40), Picture(3, 32, 40)),
        ((32, 40, 3), Picture(3, 32, 40, has_channels_last=True)),
        ((10, 8, 8), Picture(10, 8, 8)),
        ((3, 28, 5), Picture(3, 28, 5)),
    ],
)
def test_channels_are_told_from_sides(shape: tuple[int, ...], picture: Picture) -> None:
    assert picture_of(Task("regression", shape, 1)) == picture


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("shape", [(6, 6), (17, 40, 3), (3, 224, 224)])
def test_networks_fit_the_image_and_their_parameters_are_counted_beforehand(name: str, shape: tuple[int, ...]) -> None:
    chosen, task = ARCHITECTURES[name], Task("classification", shape, 7)
    config = complete(chosen, {})
    with torch.device("meta"):
        module = chosen.build(task, config)
        assert isinstance(module, torch.nn.Module)
        assert module.eval()(torch.zeros(2, *shape)).shape == (2, 7)
    size = chosen.size(task, config)
    assert size.n_parameters == sum(parameter.numel() for parameter in module.parameters())
    assert size.n_outputs_a_row >= math.prod(shape)


@pytest.mark.parametrize(
    ("name", "n_parameters"),
    [
        # What torchvision 0.20 says of its own. Its AlexNet ends in maps of 6 by 6, ours in 7 by 7; its VGG has biases
        # before normalisations, which take them away again.
        ("alexnet", 61_100_840 + 256 * 13 * 4096),
        ("vgg", 132_868_840 - 2752),
        ("squeezenet", 1_235_496),
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
    ],
)
def test_a_photograph_gets_the_network_of_the_paper(name: str, n_parameters: int) -> None:
    chosen = ARCHITECTURES[name]
    assert chosen.size(PHOTOGRAPHS, complete(chosen, {})).n_parameters == n_parameters


def test_small_images_are_refused_and_so_is_what_no_memory_holds() -> None:
    assert fits(ARCHITECTURES["vgg"], Task("regression", (5, 9), 1)) == (
        "vgg needs images of at least 6 by 6, got 5 by 9"
    )
    chosen = ARCHITECTURES["resnet50"]
    words = shortage(chosen, PHOTOGRAPHS, complete(chosen, {"width": 16.0}), [1000], 2**33)
    assert words is not None
    assert words.startswith("resnet50 with width 16.0, batch_size 64 takes at least ")


# What training does


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_resumed_trial_draws_and_learns_what_the_whole_one_does(name: str, kind: Any) -> None:
    task = Task(kind, (6, 7), 3 if kind == "classification" else 1, input_range=(-4.0, 4.0))
    config: dict[str, Any] = {"width": 1 if name == "lenet" else 0.1, "batch_size": 4} | DRAWN
    first, second = rows(task, 9), rows(task, 8, seed=1)  # the last batch of the first is a single row
    whole = start(name, task, **config)
    whole.train(*first, seed=5, pause=no_pause)
    hopped = trainer_for("torch").resume(ARCHITECTURES[name], config, task, whole.dump())
    torch.rand(3)
    assert hopped.train(*second, seed=6, pause=no_pause) == whole.train(*second, seed=6, pause=no_pause)
    assert hopped.dump() == whole.dump()
    assert np.array_equal(hopped.outputs(first[0]), whole.outputs(first[0]))


@pytest.mark.parametrize("name", NETWORKS)
def test_real_digits_are_told_apart(name: str) -> None:
    """In a few passes over 800 digits, at least 20 points better than answering the commonest digit (about 11 %)."""
    digits = load_digits()
    inputs = torch.tensor((digits.images - 4.9) / 6.0, dtype=torch.float32)
    targets = torch.tensor(digits.target)
    chosen: dict[str, Any] = {"width": 0.5, "batch_size": 16, "schedule": "constant"} | LEARNING.get(name, {})
    live = start(name, Task("classification", (8, 8), 10), **chosen)
    for seed in range(3 if name == "squeezenet" else 2):
        live.train(inputs[:800], targets[:800], seed=seed, pause=no_pause)
    right = live.outputs(inputs[1200:]).argmax(axis=1) == digits.target[1200:]
    majority = np.bincount(digits.target[1200:]).max() / 597
    assert right.mean() > majority + 0.2


@pytest.mark.parametrize(("name", "config"), [("resnet18", {"width": 0.1}), ("lenet", {"flip": "both"})])
def test_what_is_of_one_batch_is_not_stacked(name: str, config: dict[str, Any]) -> None:
    task = Task("classification", (6, 6), 3)
    trials = [start(name, task, seed, batch_size=4, **config) for seed in range(2)]
    own = [Pass(*rows(task, 8, seed), seed) for seed in range(2)]
    with pytest.raises(NotStackable):
        train_stacked(trials, own, 2, no_pause)


# What is done to images


def test_flips_and_crops_are_of_training_and_follow_the_seed() -> None:
    images = torch.arange(2 * 1 * 5 * 6, dtype=torch.float32).view(2, 1, 5, 6).repeat(50, 1, 1, 1)
    for layer in (Flip((3,)), Flip((2, 3)), Crop(2)):
        made = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            made.append(layer(images))
        assert torch.equal(made[0], made[1])
        assert not torch.equal(made[0], made[2])
        assert torch.equal(layer.eval()(images), images)


def test_a_flip_mirrors_some_images_whole_and_leaves_the_others() -> None:
    images = torch.rand(200, 2, 4, 5)
    flipped = [bool(torch.equal(made, image.flip(2))) for made, image in zip(Flip((3,))(images), images, strict=True)]
    kept = [bool(torch.equal(made, image)) for made, image in zip(Flip((3,))(images), images, strict=True)]
    assert 50 < sum(flipped) < 150
    assert 50 < sum(kept) < 150


def test_a_crop_moves_an_image_by_so_many_pixels_at_most() -> None:
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 4] = 1.0
    places = {tuple(where[2:].tolist()) for where in Crop(2)(image.repeat(500, 1, 1, 1)).nonzero()}
    assert places == {(row, column) for row in range(2, 7) for column in range(2, 7)}


def test_normalisation_is_the_formula_over_the_range_of_training() -> None:
    rows_ = torch.tensor([[-5.0, 0.0, 1.0, 3.0, 99.0]])
    scaled = np.array([0.0, 0.0, 0.25, 0.75, 1.0])  # from 0 to 4; beyond counts as the ends
    expected = 8 * (-(scaled ** (2 * 0.4)) + scaled**0.4) - 1
    np.testing.assert_allclose(Normalise(0.4, 0.0, 4.0)(rows_)[0].numpy(), expected, atol=1e-6)


def test_the_encoder_keeps_the_range_that_images_are_scaled_by() -> None:
    field = TensorField(
        column="image", type="bytea", dtype="u1", shape=(8, 8), mean=np.array([100.0]), scale=np.array([50.0]),
        knots=(np.array([10.0, 200.0]),),
    )  # fmt: skip
    encoder = Encoder((field,), (8, 8), LabelTarget("kind", "text", ("a", "b")))
    again = Encoder.from_json(encoder.to_json())
    task = task_in(row_form_of("standard", again), again)
    assert task.input_range == (-1.8, 2.0)
    chosen = ARCHITECTURES["nin"]
    config = complete(chosen, {"normalization": "0.2"})
    assert chosen.config_objection(task, config) is None
    assert "refresh it" in str(chosen.config_objection(Task("classification", (8, 8), 2), config))
