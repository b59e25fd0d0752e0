"""A multilayer perceptron: over embedded columns of a table, or over a flattened array."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.size import Size, dense_size
from easeml_plpy.architectures.tables import numpy_layers
from easeml_plpy.architectures.tables.numpy_layers import Layer, Weights
from easeml_plpy.architectures.tables.table_size import embedded_width, first_layer_size, text_columns
from easeml_plpy.architectures.tables.target_transforms import object_to_transform
from easeml_plpy.architectures.torch_hyperparameters import ACTIVATION, TABLE_HYPERPARAMETERS
from easeml_plpy.columns.task import Task
from easeml_plpy.server.value_types import Floats

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


def first_layer(task: Task, config: Config) -> tuple[nn.Module, int]:
    """Return what makes one row of numbers of the input, and how many: embedded columns, or the flattened array."""
    from torch import nn

    if not task.layout:
        return nn.Flatten(), task.n_features
    from easeml_plpy.architectures.tables.table_embedding import TableEmbedding

    size = config.integer("embedding_size")
    return TableEmbedding(task.layout, size), embedded_width(task.layout, size)


def build_mlp(task: Task, config: Config) -> nn.Module:
    """Build a network from (n, *input_shape) to (n, n_outputs)."""
    first, n_features = first_layer(task, config)
    if not text_columns(task.layout):
        return add_hidden_layers(OrderedDict(flatten=first), n_features, task, config)
    from easeml_plpy.architectures.tables.table_embedding import WideAndDeep

    return WideAndDeep(first, add_hidden_layers(OrderedDict(), n_features, task, config), n_features, task.n_outputs)


def forward_hidden_layers(config: Config, weights: Weights, prefix: str) -> Layer:
    """Return hidden layers and the output as a function of numpy."""
    layers: list[Layer] = []
    for index in range(len(config.integers("hidden_units"))):
        layers += [numpy_layers.linear(weights, f"{prefix}hidden_{index}")]
        layers += [numpy_layers.ACTIVATIONS[config.text("activation")]]
    return numpy_layers.sequence([*layers, numpy_layers.linear(weights, f"{prefix}output")])


def forward_mlp(task: Task, config: Config, weights: Weights) -> Layer:
    """Return the network as a function of numpy."""
    if not text_columns(task.layout):
        first = numpy_layers.first_layer(task.layout, weights, "flatten")
        return numpy_layers.sequence([first, forward_hidden_layers(config, weights, "")])
    first = numpy_layers.first_layer(task.layout, weights, "first")
    deep, wide = forward_hidden_layers(config, weights, "deep."), numpy_layers.linear(weights, "wide")

    def forward(rows: Floats) -> Floats:
        embedded = first(rows)
        beside = wide(embedded)
        return deep(embedded) + beside

    return forward


def mlp_size(task: Task, config: Config) -> Size:
    """Return the size of the network that the config asks for."""
    first, n_features = first_layer_size(task, config.integer("embedding_size"))
    wide = dense_size(n_features, (), task) if text_columns(task.layout) else Size(0, 0)
    return first + dense_size(n_features, config.integers("hidden_units"), task) + wide


MLP = Architecture(
    name="mlp",
    trainer="torch",
    summary="multilayer perceptron: hidden layers with an activation and dropout, over embedded columns of a table",
    hyperparameters=(
        Hyperparameter(
            "hidden_units",
            "integers",
            [256, 256],
            "the width of each hidden layer",
            low=1,
            high=65536,
            max_length=16,
            search=[[128, 128], [256, 256], [512, 256], [256, 256, 256]],
        ),
        ACTIVATION,
        *TABLE_HYPERPARAMETERS,
    ),
    build=build_mlp,
    forward=forward_mlp,
    size=mlp_size,
    view="table",
    config_objection=object_to_transform,
    outputs="any",
)
