"""A residual network over embedded columns: each block adds to its input.

It has the form of Gorishniy et al., "Revisiting Deep Learning Models for Tabular Data" (NeurIPS 2021, section 3.2), but
with layer instead of batch normalisation. Without batch statistics, averaged weights can predict as they are.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.size import Size, dense_size
from easeml_plpy.architectures.tables import numpy_layers
from easeml_plpy.architectures.tables.mlp import first_layer
from easeml_plpy.architectures.tables.numpy_layers import Layer, Weights
from easeml_plpy.architectures.tables.table_size import first_layer_size
from easeml_plpy.architectures.tables.target_transforms import object_to_transform
from easeml_plpy.architectures.torch_hyperparameters import TABLE_HYPERPARAMETERS
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn


def build_resnet(task: Task, config: Config) -> nn.Module:
    """Build a network from (n, *input_shape) to (n, n_outputs)."""
    from torch import nn

    from easeml_plpy.architectures.tables.residual_block import ResidualBlock

    first, n_features = first_layer(task, config)
    width = config.integer("width")
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=first, widen=nn.Linear(n_features, width))
    for index in range(config.integer("n_blocks")):
        layers[f"block_{index}"] = ResidualBlock(width, config.number("dropout"))
    layers |= {"norm": nn.LayerNorm(width), "activation": nn.ReLU(), "output": nn.Linear(width, task.n_outputs)}
    return nn.Sequential(layers)


def forward_resnet(task: Task, config: Config, weights: Weights) -> Layer:
    """Return the network as a function of numpy."""
    layers = [numpy_layers.first_layer(task.layout, weights, "flatten"), numpy_layers.linear(weights, "widen")]
    layers += [_forward_block(weights, f"block_{index}.inner") for index in range(config.integer("n_blocks"))]
    norm = numpy_layers.layer_norm(weights, "norm")
    return numpy_layers.sequence([*layers, norm, numpy_layers.relu, numpy_layers.linear(weights, "output")])


def _forward_block(weights: Weights, name: str) -> Layer:
    """Return a ResidualBlock."""
    inner = numpy_layers.sequence([
        numpy_layers.layer_norm(weights, f"{name}.0"), numpy_layers.linear(weights, f"{name}.1"),
        numpy_layers.relu, numpy_layers.linear(weights, f"{name}.4"),
    ])  # fmt: skip
    return lambda rows: rows + inner(rows)


def resnet_size(task: Task, config: Config) -> Size:
    """Return the size of the network that the config asks for."""
    first, n_features = first_layer_size(task, config.integer("embedding_size"))
    width, n_blocks = config.integer("width"), config.integer("n_blocks")
    blocks = Size(n_blocks * (4 * width + 5) * width, n_blocks * 4 * width)
    norm = Size(2 * width, width)
    return first + dense_size(n_features, [width], task) + blocks + norm


RESNET = Architecture(
    name="resnet",
    trainer="torch",
    summary="residual network over embedded columns of a table: blocks with layer normalisation and dropout",
    hyperparameters=(
        Hyperparameter(
            "width", "integer", 128, "the width of every block", low=1, high=16384, log=True, search=[64, 128, 256]
        ),
        Hyperparameter("n_blocks", "integer", 2, "the number of blocks", low=1, high=64, search=[1, 2, 3]),
        *TABLE_HYPERPARAMETERS,
    ),
    build=build_resnet,
    forward=forward_resnet,
    size=resnet_size,
    view="table",
    config_objection=object_to_transform,
)
