"""Trials that train as one computation come to the states that they come to alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_plpy.architectures import complete
from easeml_plpy.architectures.torch_hyperparameters import PER_TRIAL
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import TrialFailed
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers import ARCHITECTURES
from easeml_plpy.trainers.networks.stack import Pass, n_common_steps, repeat_stacked, stack_key, train_stacked
from easeml_plpy.trainers.networks.stacked_layers import NotStackable
from easeml_plpy.trainers.networks.torch_trainer import TorchTrainer
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from tests.unit.plpy.architectures.test_networks import LAYOUT, WORDS, table_task
from tests.unit.plpy.trainers.training_rows import no_pause, rows

TRAINER = TorchTrainer()
FLAT = Task("classification", (6,), 3)
TABLE = table_task("classification", LAYOUT, 3)
IMAGES = Task("classification", (28, 28), 3)
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"hidden_units": [8, 5]},
    "resnet": {"width": 8, "n_blocks": 2},
    "tabm": {"width": 8, "n_members": 3},
    "linear": {},
    "lenet": {},
}


def start(name: str, task: Task, seed: int, **config: Any) -> TorchTrial:
    known = {hyperparameter.name for hyperparameter in ARCHITECTURES[name].hyperparameters}
    config = {key: value for key, value in (SMALL[name] | {"batch_size": 8} | config).items() if key in known}
    return TRAINER.start(ARCHITECTURES[name], config, task, n_steps_total=60, seed=seed)


def again(trial: TorchTrial) -> TorchTrial:
    blueprint = trial.blueprint
    return TRAINER.resume(blueprint.architecture, blueprint.config, blueprint.task, trial.dump())


def passes(task: Task, sizes: list[int], seed: int = 0) -> list[Pass]:
    made = []
    for k, n in enumerate(sizes):
        inputs, targets = (
            each[:n] for each in rows(Task(task.kind, task.input_shape, task.n_outputs), n + 1, seed + k)
        )
        if task.layout:
            inputs = inputs.abs().remainder(1.0)
            inputs[:, [k for k, column in enumerate(task.layout) if column.kind == "token"]] *= 40
            inputs[:, 2] = (inputs[:, 2] * 3).floor()
        made.append(Pass(inputs, targets, 100 * seed + k))
    return made


def alone(trial: TorchTrial, own: Pass) -> float:
    return trial.train(own.inputs, own.targets, seed=own.seed, pause=no_pause).loss_mean


def together(trials: list[TorchTrial], own: list[Pass]) -> list[Any]:
    return train_stacked(trials, own, n_common_steps(trials, own), no_pause)


def check_alike(one: TorchTrial, other: TorchTrial) -> None:
    mine, theirs = checkpoint.load(one.dump()), checkpoint.load(other.dump())
    assert mine.attributes == theirs.attributes
    assert mine.tensors.keys() == theirs.tensors.keys()
    for name, tensor in mine.tensors.items():
        torch.testing.assert_close(tensor, theirs.tensors[name], rtol=2e-4, atol=2e-5, msg=name)


def check(trials: list[TorchTrial], task: Task, sizes: list[int], n_passes: int = 2) -> None:
    """Pass over rows several times, stacked and alone, and compare losses and states."""
    single = [again(trial) for trial in trials]
    for number in range(n_passes):
        own = passes(task, sizes, number)
        losses = [alone(trial, each) for trial, each in zip(single, own, strict=True)]
        done = together(trials, own)
        assert [each.loss_mean for each in done] == pytest.approx(losses, rel=1e-4, nan_ok=True)
        assert [each.n_rows for each in done] == sizes
    for one, other in zip(trials, single, strict=True):
        check_alike(one, other)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("mlp", FLAT), ("mlp", TABLE), ("resnet", TABLE), ("tabm", TABLE), ("linear", FLAT), ("lenet", IMAGES),
        ("mlp", Task("regression", (6,), 1)), ("tabm", table_task("regression", LAYOUT, 1)),
    ],
)  # fmt: skip
def test_every_network_trains_in_a_stack_as_it_trains_alone(name: str, task: Task) -> None:
    # Adam makes steps of full size of gradients that are nothing but rounding, as images have them.
    more = {"optimizer": "sgd"} if name == "lenet" else {}
    trials = [start(name, task, seed, learning_rate=10.0**-rate, **more) for seed, rate in enumerate((2, 3, 2))]
    check(trials, task, [37, 37, 40])


SETTINGS = st.fixed_dictionaries(
    {
        "learning_rate": st.sampled_from([1e-3, 1e-2, 5e-2]),
        "weight_decay": st.sampled_from([0.0, 1e-3, 0.1]),
        "momentum": st.sampled_from([0.0, 0.9]),
        "schedule": st.sampled_from(["constant", "cosine", "step"]),
        "dropout": st.sampled_from([0.0, 0.3]),
        "averaging": st.sampled_from([0.0, 0.9]),
    }
)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    st.sampled_from(["sgd", "adam", "adamw"]), st.sampled_from(["mlp", "resnet"]),
    st.lists(st.tuples(SETTINGS, st.integers(0, 50), st.integers(0, 2)), min_size=1, max_size=4),
    st.sampled_from([{}, {"label_smoothing": 0.1}, {"class_weight": "balanced"}]),
)  # fmt: skip
def test_any_trials_in_any_order_from_wherever_they_are(
    optimizer: str, name: str, members: list[tuple[dict[str, Any], int, int]], more: dict[str, Any]
) -> None:
    trials = []
    for seed, (config, _, n_before) in enumerate(members):
        trials.append(start(name, TABLE, seed, optimizer=optimizer, **config, **more))
        for number in range(n_before):
            alone(trials[-1], passes(TABLE, [20], 7 + number)[0])
    assert len({stack_key(trial) for trial in trials}) == 1
    check(trials, TABLE, [n for _, n, _ in members])


def test_one_that_diverges_is_blamed_alone_and_moves_no_other() -> None:
    def made(rate: float) -> list[TorchTrial]:
        rates = [1e-2, rate, 1e-3]
        return [start("mlp", FLAT, seed, optimizer="sgd", learning_rate=each) for seed, each in enumerate(rates)]

    wild, tame = made(1e3), made(1e-2)
    own = passes(FLAT, [80, 80, 80])
    own[1] = Pass(own[1].inputs * 1e18, own[1].targets, own[1].seed)
    done = together(wild, own)
    assert isinstance(done[1], TrialFailed)
    assert "trial diverged: loss is" in str(done[1])
    together(tame, passes(FLAT, [80, 80, 80]))
    for place in (0, 2):
        assert wild[place].dump() == tame[place].dump()


def test_a_stack_of_copies_repeats_a_trial_to_the_byte() -> None:
    trials = [
        start("mlp", TABLE, seed, dropout=0.2 * (seed % 2), learning_rate=10.0 ** -(2 + seed)) for seed in range(3)
    ]
    one = again(trials[1])
    own = passes(TABLE, [64, 60, 70])
    n_steps = n_common_steps(trials, own)
    together(trials, own)
    repeat_stacked(one, own[1], (3, 1, n_steps), no_pause)
    assert one.dump() == trials[1].dump()


def test_the_key_holds_what_shapes_the_computation_and_nothing_else() -> None:
    keys = {stack_key(start("mlp", FLAT, 0, **{name: value})) for name, value in {"seed_only": 0}.items()}
    complete_config = complete(ARCHITECTURES["mlp"], {})
    other = {
        "hidden_units": [9], "activation": "tanh", "embedding_size": 8, "optimizer": "sgd", "batch_size": 16,
        "label_smoothing": 0.1, "class_weight": "balanced",
        "learning_rate": 0.5, "weight_decay": 0.5, "momentum": 0.5, "schedule": "step", "dropout": 0.5,
        "averaging": 0.5, "target_transform": "root",
    }  # fmt: skip
    assert other.keys() == complete_config.keys()
    (base,) = keys
    for name, value in other.items():
        assert (stack_key(start("mlp", FLAT, 0, **{name: value})) == base) == (name in PER_TRIAL), name


def test_what_cannot_be_stacked_is_refused_before_anything_changes() -> None:
    trials = [start("tabm", TABLE, seed, dropout=0.5) for seed in range(2)]
    before = [trial.dump() for trial in trials]
    with pytest.raises(NotStackable):
        together(trials, passes(TABLE, [20, 20]))
    assert [trial.dump() for trial in trials] == before
    text = table_task("classification", WORDS, 3)
    with pytest.raises(NotStackable):
        together([start("mlp", text, seed) for seed in range(2)], passes(text, [20, 20]))


def test_a_stack_that_fails_when_trials_have_moved_on_is_no_failure_that_leaves_them_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trained once more over the same rows, one at a time, they would have done the first steps twice."""
    trials = [start("mlp", FLAT, seed) for seed in range(2)]

    def is_too_large(*_: Any, **__: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(trials[1], "take_over", is_too_large)
    with pytest.raises(TrialFailed, match="trials that trained together could not go on alone"):
        together(trials, passes(FLAT, [40, 40]))
