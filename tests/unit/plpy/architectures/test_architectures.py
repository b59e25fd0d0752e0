"""Architectures say what they fit, complete configs, and refuse what is wrong by its path."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from easeml_plpy.architectures import Architecture, Hyperparameter, complete, fits
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import InvalidArgument, NotFound
from easeml_plpy.trainers import ARCHITECTURES, TRAINERS, architecture

ALL = list(ARCHITECTURES.values())
TORCH = [each for each in ALL if each.trainer == "torch"]
DECLARED = [(each, hyperparameter) for each in ALL for hyperparameter in each.hyperparameters]


def legal(hyperparameter: Hyperparameter) -> list[Any]:
    """Values that the hyperparameter itself declares to be legal."""
    search = hyperparameter.search
    searched = [search["low"], search["high"]] if isinstance(search, dict) else search or []
    return [hyperparameter.default, *searched]


def test_the_registry_holds_what_is_promised() -> None:
    assert list(ARCHITECTURES) == [
        "linear",
        "mlp",
        "resnet",
        "tabm",
        "lenet",
        "alexnet",
        "bn_alexnet",
        "nin",
        "vgg",
        "googlenet",
        "squeezenet",
        "resnet18",
        "resnet50",
        "rnn",
        "lstm",
        "bilstm",
        "gru",
        "transformer",
        "temporal_cnn",
        "tree_rnn",
        "tree_lstm",
        "tree_kernel_svm",
        "bit_rnn",
        "bit_autoencoder",
        "autoencoder",
        "unet",
        "gan",
        "pix2pix",
        "seq2seq",
        "sgd",
        "perceptron",
        "passive_aggressive",
        "gaussian_nb",
        "multinomial_nb",
        "lightgbm",
        "extra_trees",
        "random_forest",
        "ensemble",
    ]
    assert all(each.trainer in TRAINERS and each.summary and each.input_ranks for each in ALL)


def test_an_unknown_architecture_is_not_found_and_near_names_are_offered() -> None:
    with pytest.raises(NotFound, match="lenett") as caught:
        architecture("lenett")
    assert "'lenet'" in (caught.value.hint or "")


@pytest.mark.parametrize(("each", "hyperparameter"), DECLARED, ids=lambda value: value.name)
def test_declared_hyperparameters_are_sound(each: Architecture, hyperparameter: Hyperparameter) -> None:
    for value in legal(hyperparameter):
        checked = hyperparameter.check(value, "config")
        assert checked == value
        assert type(checked) is type(value)
    json.dumps(hyperparameter.to_json(), allow_nan=False)
    assert hyperparameter.summary
    if hyperparameter.kind == "categorical":
        assert hyperparameter.choices
    elif hyperparameter.kind in ("names", "groups"):
        assert hyperparameter.default == []
    else:
        assert hyperparameter.low is not None
        assert hyperparameter.high is not None
        assert not hyperparameter.log or hyperparameter.low > 0


@pytest.mark.parametrize("each", ALL, ids=lambda each: each.name)
def test_completing_fills_defaults_and_twice_changes_nothing(each: Architecture) -> None:
    config = complete(each, {})
    assert config == {one.name: one.default for one in each.hyperparameters}
    assert complete(each, config) == config


def test_values_are_given_their_type() -> None:
    config = complete(architecture("mlp"), {"learning_rate": 1, "batch_size": 32.0, "hidden_units": (8, 4.0)})
    assert (config["learning_rate"], config["batch_size"], config["hidden_units"]) == (1.0, 32, [8, 4])
    assert [type(config[name]) for name in ("learning_rate", "batch_size")] == [float, int]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"learning_rate": "fast"}, "config.learning_rate: expected a number from 1e-08 to 1000, got 'fast'"),
        ({"learning_rate": -1}, "config.learning_rate: expected a number from 1e-08 to 1000, got -1"),
        ({"learning_rate": math.nan}, "got nan"),
        ({"learning_rate": math.inf}, "got inf"),
        ({"learning_rate": True}, "got True"),
        ({"learning_rate": None}, "got None"),
        ({"batch_size": 2.5}, "config.batch_size: expected an integer from 1 to 65536, got 2.5"),
        ({"batch_size": 10**400}, "config.batch_size: expected an integer"),
        ({"optimizer": "adm"}, "config.optimizer: expected one of 'sgd', 'adam', 'adamw', got 'adm'"),
        ({"hidden_units": 5}, "config.hidden_units: expected a list of at most 16 integers from 1 to 65536"),
        ({"hidden_units": [1] * 17}, "config.hidden_units: expected a list of at most 16"),
        ({"hidden_units": [8, 0]}, "config.hidden_units[1]: expected a list"),
        ({"hidden_units": "88"}, "got '88'"),
        ({"learning_rat": 1}, "config.learning_rat: expected a hyperparameter of mlp, got 'learning_rat'"),
    ],
)
def test_wrong_values_are_refused_by_path(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        complete(architecture("mlp"), config)
    assert message in str(caught.value)
    assert caught.value.hint


def test_near_hyperparameters_are_offered() -> None:
    with pytest.raises(InvalidArgument) as caught:
        complete(architecture("mlp"), {"learning_rat": 1})
    assert "'learning_rate'" in (caught.value.hint or "")


def test_true_is_not_one() -> None:
    with pytest.raises(InvalidArgument, match=r"expected one of True, False, got 1$"):
        complete(architecture("multinomial_nb"), {"fit_prior": 1})


@pytest.mark.parametrize(
    ("name", "task", "reason"),
    [
        ("mlp", Task("regression", (3, 4, 5), 1), None),
        ("gaussian_nb", Task("regression", (3,), 1), "gaussian_nb does classification, not regression"),
        ("lenet", Task("classification", (64,), 10), "lenet takes inputs of rank 2 or 3, got shape [64]"),
        ("lenet", Task("classification", (6, 6), 10), None),
        (
            "lenet",
            Task("classification", (3, 28, 5), 10),
            "lenet needs images of at least 6 by 6, got 28 by 5",
        ),
    ],
)
def test_fits(name: str, task: Task, reason: str | None) -> None:
    assert fits(architecture(name), task) == reason


@pytest.mark.parametrize("each", TORCH, ids=lambda each: each.name)
@pytest.mark.parametrize("shape", [(1,), (7,), (6, 6), (8, 8), (28, 28), (3, 6, 9), (1, 17, 40), (3, 32, 32)])
def test_networks_map_rows_to_outputs(each: Architecture, shape: tuple[int, ...]) -> None:
    for task in (Task("classification", shape, 3), Task("regression", shape, 1)):
        if fits(each, task) is None:
            module = each.build(task, complete(each, {}))
            members = [8] if each.name == "tabm" else []
            assert module(torch.zeros(2, *shape)).shape == (2, *members, task.n_outputs)


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
@pytest.mark.parametrize("hidden_units", [[], [4], [4, 3]])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_mlp_has_the_layers_that_are_asked_for(activation: str, hidden_units: list[int], dropout: float) -> None:
    config = {"activation": activation, "hidden_units": hidden_units, "dropout": dropout}
    mlp = architecture("mlp")
    module = mlp.build(Task("classification", (5,), 3), complete(mlp, config))
    widths = [layer.out_features for layer in module if isinstance(layer, torch.nn.Linear)]
    assert widths == [*hidden_units, 3]
    n_dropouts = sum(isinstance(layer, torch.nn.Dropout) for layer in module)
    assert n_dropouts == (len(hidden_units) if dropout else 0)


def test_lenet_grows_with_width_and_shrinks_its_kernel_on_small_images() -> None:
    lenet = architecture("lenet")
    large = lenet.build(Task("classification", (28, 28), 10), complete(lenet, {"width": 2}))
    small = lenet.build(Task("classification", (8, 8), 10), complete(lenet, {}))
    assert large.convolution_1.weight.shape == (32, 12, 5, 5)
    assert small.convolution_1.weight.shape == (16, 6, 3, 3)


@pytest.mark.parametrize(
    ("kind", "shape", "n_outputs"),
    [
        ("ranking", (1,), 1),
        ("classification", (), 2),
        ("classification", (0,), 2),
        ("classification", (1,), 1),
        ("regression", (1,), 2),
    ],
)
def test_impossible_tasks_are_refused(kind: Any, shape: tuple[int, ...], n_outputs: int) -> None:
    with pytest.raises(InvalidArgument, match=r"^task "):
        Task(kind, shape, n_outputs)
