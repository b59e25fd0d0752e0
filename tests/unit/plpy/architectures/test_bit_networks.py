"""Networks over bits: what a number is as bits, that they take any input and hop, and what they make of real digits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from easeml_plpy.architectures import complete, fits
from easeml_plpy.architectures.bits.modules import bits_of
from easeml_plpy.columns.task import Objects, Task
from easeml_plpy.trainers import ARCHITECTURES, trainer_for
from tests.digit_objects import columns, labels
from tests.unit.plpy.architectures.object_rows import field_of, read
from tests.unit.plpy.trainers.training_rows import no_pause

SHAPES: list[tuple[tuple[int, ...], Objects | None]] = [
    ((5,), None), ((300,), None), ((9, 7, 3), None), ((6, 4), Objects(3, 0)), ((6, 8), Objects(4, 3)),
]  # fmt: skip


def task_of(name: str, shape: tuple[int, ...], objects: Objects | None) -> Task:
    if name == "bit_rnn":
        return Task("classification", shape, 3, objects=objects)
    return Task("regression", shape, 6, output_shape=(2, 3), objects=objects)


def rows_of(shape: tuple[int, ...], objects: Objects | None) -> torch.Tensor:
    rows = torch.randn(7, *shape, generator=torch.Generator().manual_seed(3))
    if objects is not None:
        rows[:, :, objects.n_numbers :] = 0
        rows[:, :3, objects.n_numbers] = 1
        rows[:, 0, objects.n_numbers + 1 :] = 2
    return rows


def test_a_number_is_sign_exponent_and_first_digits() -> None:
    bits = bits_of(torch.tensor([[1.0, -2.0, 0.0]]))[0].view(3, 16)
    words = [int("".join("1" if bit > 0 else "0" for bit in row.tolist()), 2) for row in bits]
    assert words == [0x3F80, 0xC000, 0]


@pytest.mark.parametrize("name", ["bit_rnn", "bit_autoencoder"])
@pytest.mark.parametrize(("shape", "objects"), SHAPES)
def test_they_take_any_input_count_their_parameters_and_hop(
    name: str, shape: tuple[int, ...], objects: Objects | None
) -> None:
    chosen, task = ARCHITECTURES[name], task_of(name, shape, objects)
    assert fits(chosen, task) is None
    config = {"width": 6, "batch_size": 3, "dropout": 0.1}
    module = chosen.build(task, complete(chosen, config))
    assert isinstance(module, torch.nn.Module)
    size = chosen.size(task, complete(chosen, config))
    assert size.n_parameters == sum(parameter.numel() for parameter in module.parameters())
    rows = rows_of(shape, objects)
    targets = torch.arange(7) % 3 if name == "bit_rnn" else torch.linspace(-1, 1, 42).view(7, 6)
    whole = trainer_for("torch").start(chosen, config, task, n_steps_total=6, seed=1)
    whole.train(rows, targets, seed=5, pause=no_pause)
    hopped = trainer_for("torch").resume(chosen, config, task, whole.dump())
    assert hopped.train(rows, targets, seed=6, pause=no_pause) == whole.train(rows, targets, seed=6, pause=no_pause)
    assert hopped.dump() == whole.dump()
    for place in range(7):  # alone as among others
        np.testing.assert_allclose(whole.outputs(rows[place : place + 1])[0], whole.outputs(rows)[place], atol=1e-5)


def standardised(images: Any) -> torch.Tensor:
    return torch.tensor((images - 4.9) / 6.0, dtype=torch.float32)


def trained(name: str, task: Task, rows: torch.Tensor, targets: torch.Tensor, n_passes: int) -> Any:
    """Return the outputs for the last 597 digits of a trial that was trained on the first 1,200."""
    config = {"learning_rate": 1e-2, "batch_size": 16, "width": 64}
    live = trainer_for("torch").start(ARCHITECTURES[name], config, task, n_steps_total=75 * n_passes, seed=1)
    for seed in range(n_passes):
        live.train(rows[:1200], targets[:1200], seed=seed, pause=no_pause)
    return live.outputs(rows[1200:])


def test_real_digits_are_told_apart_by_their_bits() -> None:
    """In two passes better than two fifths, where the most frequent digit has a tenth."""
    images, digits = load_digits().images, torch.tensor(labels())
    outputs = trained("bit_rnn", Task("classification", (8, 8), 10), standardised(images), digits, 2)
    assert (outputs.argmax(axis=1) == digits[1200:].numpy()).mean() > 0.4


def test_real_digits_become_pictures_again_out_of_the_columns_that_have_ink() -> None:
    """In four passes a tenth less error than the mean digit."""
    rows, field = read(field_of(8, "next", name="ink"), columns())
    images = load_digits().images
    task = Task("regression", field.shape, 64, output_shape=(8, 8), output_range=(0.0, 16.0), objects=Objects(8, 0))
    outputs = trained("bit_autoencoder", task, rows, standardised(images).flatten(1), 4) * 6.0 + 4.9
    wanted = images[1200:].reshape(597, -1)

    def rmse(given: Any) -> float:
        return math.sqrt(np.mean((given - wanted) ** 2))

    assert rmse(outputs) < 0.9 * rmse(images[:1200].mean(0).ravel())
