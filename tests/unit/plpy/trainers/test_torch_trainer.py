"""The torch trainer learns, repeats itself byte for byte, and resumes as if it had never stopped."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from easeml_plpy.architectures import Architecture, Config
from easeml_plpy.columns.task import Task
from easeml_plpy.server import chunks
from easeml_plpy.server.errors import (
    CorruptCheckpoint,
    InvalidArgument,
    InvalidData,
    NotAllowed,
    NotFound,
    ShapeMismatch,
    TrialFailed,
    VersionMismatch,
)
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers import ARCHITECTURES, trainer_for
from easeml_plpy.trainers.networks import torch_trainer, torch_trial
from easeml_plpy.trainers.networks.losses import Loss
from easeml_plpy.trainers.networks.optimizers import has_fused_optimizer, learning_rate_at
from tests.unit.plpy.trainers.training_rows import IMAGE_NETWORKS, OTHERS, SERIES_NETWORKS, no_pause, rows

TRAINER = torch_trainer.TorchTrainer()
ARCHITECTURE_NAMES = [
    name for name, each in OTHERS.items() if each.trainer == "torch" and name not in (*IMAGE_NETWORKS, *SERIES_NETWORKS)
] + ["lenet"]
"""Those of images, series and tensors have tests of their own, such as test_image_networks.py."""
LINEAR, MLP = ARCHITECTURES["linear"], ARCHITECTURES["mlp"]
DIGITS = Task("classification", (6, 6), 3)
VECTORS = Task("classification", (4,), 3)
NUMBERS = Task("regression", (4,), 1)


def start(
    architecture: Architecture, config: dict[str, Any], task: Task, n_steps_total: int = 8
) -> torch_trial.TorchTrial:
    return TRAINER.start(architecture, config, task, n_steps_total=n_steps_total, seed=1)


OPTIMIZERS, SCHEDULES = ["sgd", "adam", "adamw"], ["constant", "cosine", "step"]
PAIRS = list(zip(OPTIMIZERS, SCHEDULES, strict=True))


@pytest.mark.parametrize(
    ("name", "optimizer", "schedule"),
    [
        (name, *pair)
        for name in ARCHITECTURE_NAMES
        for pair in (itertools.product(OPTIMIZERS, SCHEDULES) if name == "mlp" else PAIRS)
    ],
)
@pytest.mark.parametrize("task", [DIGITS, Task("regression", (6, 6), 1)], ids=lambda task: task.kind)
def test_a_resumed_trial_continues_byte_for_byte(name: str, optimizer: str, schedule: str, task: Task) -> None:
    config: dict[str, Any] = {
        "optimizer": optimizer,
        "schedule": schedule,
        "batch_size": 8,
        "weight_decay": 0.01,
    }
    known = {hyperparameter.name for hyperparameter in ARCHITECTURES[name].hyperparameters}
    narrow = {"dropout": 0.3, "hidden_units": [5], "n_blocks": 1, "n_members": 2}
    config |= {key: value for key, value in narrow.items() if key in known}
    if name != "lenet" and "width" in known:
        config["width"] = 5
    first, second = rows(task, 21), rows(task, 18, seed=1)
    whole = start(ARCHITECTURES[name], config, task)
    whole.train(*first, seed=5, pause=no_pause)
    hopped = TRAINER.resume(ARCHITECTURES[name], config, task, whole.dump())
    assert hopped.dump() == whole.dump()
    torch.rand(3)
    assert hopped.train(*second, seed=6, pause=no_pause) == whole.train(*second, seed=6, pause=no_pause)
    assert hopped.dump() == whole.dump()
    assert np.array_equal(hopped.outputs(first[0]), whole.outputs(first[0]))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in ARCHITECTURE_NAMES),
        *(("mlp", {"optimizer": optimizer, "averaging": 0.9}) for optimizer in ("sgd", "adam", "adamw")),
    ],
)
def test_a_trial_that_another_session_has_trained_on_goes_on_in_what_the_first_one_kept(
    name: str, settings: dict[str, Any]
) -> None:
    architecture, (first, second) = ARCHITECTURES[name], (rows(DIGITS, 21), rows(DIGITS, 18, seed=1))
    config = {"batch_size": 8, "schedule": "cosine", **settings}
    stale = start(architecture, config, DIGITS)
    stale.train(*first, seed=5, pause=no_pause)
    elsewhere = TRAINER.resume(architecture, config, DIGITS, stale.dump())
    elsewhere.train(*second, seed=6, pause=no_pause)
    assert np.isfinite(stale.outputs(first[0])).all()
    hopped = TRAINER.resume(architecture, config, DIGITS, elsewhere.dump(), stale=stale)
    assert hopped is stale
    assert hopped.dump() == elsewhere.dump()
    assert np.array_equal(hopped.outputs(first[0]), elsewhere.outputs(first[0]))
    assert hopped.train(*first, seed=7, pause=no_pause) == elsewhere.train(*first, seed=7, pause=no_pause)
    assert hopped.dump() == elsewhere.dump()


@pytest.mark.parametrize(
    ("settings", "n_steps_total", "n_rows"),
    [
        ({"learning_rate": 0.5}, 8, 10),
        ({"optimizer": "sgd"}, 8, 10),
        ({"hidden_units": [3]}, 8, 10),
        ({}, 9, 10),
        ({}, 8, 0),
    ],
    ids=["another rate", "another optimiser", "another width", "another schedule", "no slots yet"],
)
def test_a_kept_trial_that_is_another_one_is_left_alone(
    settings: dict[str, Any], n_steps_total: int, n_rows: int
) -> None:
    """Of a config that was changed on purpose, too: its optimiser would have the settings of before."""
    config = {"optimizer": "adam", "batch_size": 4, "hidden_units": [5], "learning_rate": 0.1}
    stale = start(MLP, config, VECTORS)
    stale.train(*rows(VECTORS, 10), seed=5, pause=no_pause)
    before = stale.dump()
    other = start(MLP, config | settings, VECTORS, n_steps_total)
    if n_rows:
        other.train(*rows(VECTORS, n_rows), seed=6, pause=no_pause)
    resumed = TRAINER.resume(MLP, config | settings, VECTORS, other.dump(), stale=stale)
    assert resumed is not stale
    assert (resumed.dump(), stale.dump()) == (other.dump(), before)


def test_everything_repeats_from_its_seeds_alone() -> None:
    def run(seed: int) -> bytes:
        torch.rand(7)
        trial = TRAINER.start(MLP, {"dropout": 0.5, "batch_size": 4}, VECTORS, n_steps_total=9, seed=3)
        trial.train(*rows(VECTORS, 10), seed=seed, pause=no_pause)
        return trial.dump()

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_an_untrained_trial_can_be_dumped_and_resumed() -> None:
    trial = start(MLP, {}, VECTORS)
    assert TRAINER.resume(MLP, {}, VECTORS, trial.dump()).dump() == trial.dump()


def test_chunks_do_not_change_what_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> torch.Tensor:
        trial = start(MLP, {"batch_size": 4, "dropout": 0.5}, VECTORS)
        trial.train(*rows(VECTORS, 30), seed=0, pause=no_pause)
        return torch.from_numpy(trial.outputs(rows(VECTORS, 5)[0]))

    whole = run()
    monkeypatch.setattr(chunks, "PASS_STEPS", 3)
    torch.testing.assert_close(run(), whole)


def test_it_is_plain_gradient_descent() -> None:
    """The parameters and the mean loss equal those of a loop written by hand."""
    inputs, targets = rows(VECTORS, 10)
    trial = start(LINEAR, {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 4}, VECTORS)
    state = checkpoint.load(trial.dump()).tensors
    by_hand = torch.nn.Linear(4, 3)
    by_hand.load_state_dict({key.rpartition(".")[2]: value for key, value in state.items()})
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1, momentum=0.9)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(7))
    loss_sum = 0.0
    for batch in torch.split(order, 4):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(by_hand(inputs[batch]), targets[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss_sum += float(loss.detach()) * len(batch)
    training = trial.train(inputs, targets, seed=7, pause=no_pause)
    assert training.loss_mean == pytest.approx(loss_sum / 10)
    assert (training.n_rows, training.n_steps) == (10, 3)
    expected = by_hand(inputs).softmax(dim=1).detach()
    torch.testing.assert_close(torch.from_numpy(trial.outputs(inputs)), expected)


@pytest.mark.parametrize("name", ARCHITECTURE_NAMES)
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_it_learns(name: str, kind: Any) -> None:
    task = Task(kind, (6, 6), 3 if kind == "classification" else 1)
    inputs, targets = rows(task, 100 if name == "bit_rnn" else 300)
    trial = start(ARCHITECTURES[name], {"learning_rate": 0.01, "batch_size": 8}, task)
    losses = [trial.train(inputs, targets, seed=epoch, pause=no_pause).loss_mean for epoch in range(8)]
    assert losses[-1] < losses[0] * 0.7


def test_outputs_are_probabilities_or_values() -> None:
    inputs = rows(VECTORS, 2500)[0]
    probabilities = start(MLP, {"dropout": 0.5}, VECTORS).outputs(inputs)
    assert probabilities.shape == (2500, 3)
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    trial = start(MLP, {"dropout": 0.5}, NUMBERS)
    assert trial.outputs(inputs).shape == (2500, 1)
    assert np.array_equal(trial.outputs(inputs), trial.outputs(inputs))
    assert trial.outputs(inputs[:0]).shape == (0, 1)


def test_no_rows_change_nothing() -> None:
    trial = start(MLP, {}, VECTORS)
    before = trial.dump()
    inputs, targets = rows(VECTORS, 5)
    training = trial.train(inputs[:0], targets[:0], seed=0, pause=no_pause)
    assert math.isnan(training.loss_mean)
    assert (training.n_rows, training.n_steps) == (0, 0)
    assert trial.dump() == before


def test_pause_comes_after_every_batch_and_what_it_raises_passes_through() -> None:
    class CancelledError(RuntimeError):
        pass

    calls = []

    def pause() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise CancelledError("can't allocate memory")

    trial = start(MLP, {"batch_size": 4}, VECTORS)
    with pytest.raises(CancelledError):
        trial.train(*rows(VECTORS, 40), seed=0, pause=pause)
    assert len(calls) == 3


@pytest.mark.parametrize("n_rows", [8, 400])
def test_divergence_is_the_trials_own_fault_and_names_step_and_rate(n_rows: int) -> None:
    inputs, targets = rows(NUMBERS, n_rows)
    trial = start(LINEAR, {"optimizer": "sgd", "learning_rate": 1e3, "batch_size": 4}, NUMBERS)

    def train() -> None:
        for seed in range(9):
            trial.train(inputs * 1e6, targets, seed=seed, pause=no_pause)

    with pytest.raises(TrialFailed, match=r"step \d+ with learning rate 1000$") as caught:
        train()
    assert caught.value.hint


def test_parameters_broken_by_the_last_step_are_noticed_at_once() -> None:
    inputs, targets = rows(NUMBERS, 4)
    trial = start(LINEAR, {"optimizer": "sgd", "learning_rate": 1e3, "batch_size": 4}, NUMBERS)
    with pytest.raises(TrialFailed, match="parameters are not finite after step 0"):
        trial.train(inputs * 1e18, targets, seed=0, pause=no_pause)


def test_running_out_of_memory_is_the_trials_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = start(MLP, {"batch_size": 4}, VECTORS)

    def fail(loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.empty(2**50)

    monkeypatch.setattr(Loss, "__call__", fail)
    with pytest.raises(TrialFailed, match="out of memory at step 0 with batch_size 4"):
        trial.train(*rows(VECTORS, 8), seed=0, pause=no_pause)


@pytest.mark.parametrize(
    ("inputs", "targets", "error"),
    [
        (torch.zeros(3, 5), torch.zeros(3, dtype=torch.int64), ShapeMismatch),
        (torch.zeros(3, 4).double(), torch.zeros(3, dtype=torch.int64), ShapeMismatch),
        (torch.zeros(3, 4), torch.zeros(3), ShapeMismatch),
        (torch.zeros(3, 4), torch.zeros(2, dtype=torch.int64), ShapeMismatch),
        (torch.zeros(3, 4), torch.tensor([0, 1, 3]), InvalidData),
        (torch.zeros(3, 4), torch.tensor([0, 1, -1]), InvalidData),
    ],
)
def test_wrong_rows_are_refused(inputs: torch.Tensor, targets: torch.Tensor, error: type[Exception]) -> None:
    with pytest.raises(error, match="expected"):
        start(MLP, {}, VECTORS).train(inputs, targets, seed=0, pause=no_pause)


def test_states_of_something_else_are_refused() -> None:
    payload = start(MLP, {}, VECTORS).dump()
    with pytest.raises(CorruptCheckpoint, match="architecture 'mlp', expected 'linear'"):
        TRAINER.resume(LINEAR, {}, VECTORS, payload)
    with pytest.raises(ShapeMismatch, match="task"):
        TRAINER.resume(MLP, {}, NUMBERS, payload)
    with pytest.raises(ShapeMismatch, match="shapes"):
        TRAINER.resume(MLP, {"hidden_units": [7]}, VECTORS, payload)
    with pytest.raises(CorruptCheckpoint):
        TRAINER.resume(MLP, {}, VECTORS, payload[:-1])
    state = checkpoint.load(payload)
    newer = checkpoint.dump(state.tensors, {**state.attributes, "state_version": 2})
    with pytest.raises(VersionMismatch, match="version 2"):
        TRAINER.resume(MLP, {}, VECTORS, newer)


def test_a_config_changed_on_purpose_takes_effect_at_resume() -> None:
    trial = start(LINEAR, {"optimizer": "adam"}, VECTORS)
    trial.train(*rows(VECTORS, 10), seed=0, pause=no_pause)
    still = TRAINER.resume(LINEAR, {"optimizer": "adam", "learning_rate": 1e-8}, VECTORS, trial.dump())
    still.train(*rows(VECTORS, 10), seed=1, pause=no_pause)
    before, after = trial.outputs(rows(VECTORS, 5)[0]), still.outputs(rows(VECTORS, 5)[0])
    np.testing.assert_allclose(before, after, atol=1e-5)
    other = TRAINER.resume(LINEAR, {"optimizer": "sgd"}, VECTORS, trial.dump())
    assert not any(name.startswith("optimizer/") for name in checkpoint.load(other.dump()).tensors)
    other.train(*rows(VECTORS, 10), seed=1, pause=no_pause)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("cosine", [1.0, 0.853553, 0.5, 0.146447, 0.146447, 0.146447]),
        ("step", [1.0, 1.0, 0.1, 0.01, 0.01, 0.01]),
    ],
)
def test_schedules(schedule: str, expected: list[float]) -> None:
    rates = [learning_rate_at(schedule, 1.0, step, 4) for step in range(6)]
    assert rates == pytest.approx(expected, rel=1e-5)
    assert learning_rate_at(schedule, 1.0, 5, 0) == 1.0


def test_the_schedule_reaches_the_optimiser() -> None:
    def change(schedule: str, n_steps_total: int) -> float:
        trial = start(LINEAR, {"schedule": schedule, "batch_size": 1}, VECTORS, n_steps_total)
        trial.train(*rows(VECTORS, 50), seed=0, pause=no_pause)
        before = trial.outputs(rows(VECTORS, 5)[0])
        trial.train(*rows(VECTORS, 50), seed=1, pause=no_pause)
        return float(np.abs(trial.outputs(rows(VECTORS, 5)[0]) - before).max())

    assert change("cosine", 50) < change("constant", 50) / 10


def test_steps_count_the_short_batch_of_each_partition() -> None:
    assert TRAINER.count_steps(Config({"batch_size": 32}), [64, 65, 0, 1], n_epochs=3) == 3 * (2 + 3 + 0 + 1)


@pytest.mark.parametrize(
    ("optimizer", "device_type", "version", "expected"),
    [
        ("sgd", "cpu", "2.2.0", False),
        ("adam", "cpu", "2.3.1+cpu", False),
        ("adam", "cpu", "2.4.0a0+git1", True),
        ("sgd", "cpu", "2.13.0+cpu", True),
        ("sgd", "cuda", "2.2.2", False),
        ("sgd", "cuda", "2.3.0", True),
        ("adamw", "cuda", "2.2.0+cu121", True),
    ],
)
def test_optimisers_are_fused_where_torch_can(optimizer: str, device_type: str, version: str, expected: bool) -> None:
    assert has_fused_optimizer(optimizer, device_type, version) is expected


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99"])
def test_devices_that_are_not_there_are_refused(device: str) -> None:
    with pytest.raises((InvalidArgument, NotAllowed), match=r"^device"):
        TRAINER.start(MLP, {}, VECTORS, n_steps_total=1, seed=0, device=device)


def test_what_does_not_fit_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidArgument, match="at least 6 by 6"):
        start(ARCHITECTURES["lenet"], {}, Task("classification", (5, 5), 3))


def test_trainers_are_found_by_name() -> None:
    assert isinstance(trainer_for("torch"), torch_trainer.TorchTrainer)
    with pytest.raises(NotFound, match="jax"):
        trainer_for("jax")
