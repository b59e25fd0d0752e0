"""A multilayer perceptron over the flattened input."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.size import Size, dense_size
from easeml_plpy.architectures.torch_hyperparameters import ACTIVATION, DROPOUT, TORCH_HYPERPARAMETERS
from easeml_plpy.task import Task

if TYPE_CHECKING:
    from torch import nn


def activation(config: Config) -> nn.Module:
    """Return the activation that the config names."""
    from torch import nn

    activations: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
    return activations[config.text("activation")]()


def add_hidden_layers(
    layers: OrderedDict[str, nn.Module], n_features: int, task: Task, config: Config
) -> nn.Sequential:
    """Return the layers so far, then hidden layers and the output, as one module to (n, n_outputs)."""
    from torch import nn

    for index, n_units in enumerate(config.integers("hidden_units")):
        layers[f"hidden_{index}"] = nn.Linear(n_features, n_units)
        layers[f"activation_{index}"] = activation(config)
        if config.number("dropout") > 0:
            layers[f"dropout_{index}"] = nn.Dropout(config.number("dropout"))
        n_features = n_units
    layers["output"] = nn.Linear(n_features, task.n_outputs)
    return nn.Sequential(layers)


def build_mlp(task: Task, config: Config) -> nn.Module:
    """Build a network from (n, *input_shape) to (n, n_outputs)."""
    from torch import nn

    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    return add_hidden_layers(layers, task.n_features, task, config)


def mlp_size(task: Task, config: Config) -> Size:
    """Return the size of the network that the config asks for."""
    return dense_size(task.n_features, config.integers("hidden_units"), task)


MLP = Architecture(
    name="mlp",
    trainer="torch",
    summary="multilayer perceptron: hidden layers with an activation and dropout",
    hyperparameters=(
        Hyperparameter(
            "hidden_units",
            "integers",
            [128],
            "the width of each hidden layer",
            low=1,
            high=65536,
            max_length=16,
            search=[[64], [128], [256], [128, 128]],
        ),
        ACTIVATION,
        DROPOUT,
        *TORCH_HYPERPARAMETERS,
    ),
    build=build_mlp,
    size=mlp_size,
)
