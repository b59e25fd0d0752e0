"""One layer from the flattened input to the outputs: logistic or linear regression by gradient descent."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.tables.numpy_layers import Layer, Weights, flat, linear, sequence
from easeml_plpy.architectures.torch_hyperparameters import TORCH_HYPERPARAMETERS
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn


def build_linear(task: Task, config: Config) -> nn.Module:
    """Build a network from (n, *input_shape) to (n, n_outputs)."""
    from torch import nn

    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), output=nn.Linear(task.n_features, task.n_outputs)))


def forward_linear(task: Task, config: Config, weights: Weights) -> Layer:
    """Return the network as a function of numpy."""
    return sequence([flat, linear(weights, "output")])


LINEAR = Architecture(
    name="linear",
    trainer="torch",
    summary="one linear layer: logistic or linear regression trained by gradient descent",
    hyperparameters=TORCH_HYPERPARAMETERS,
    build=build_linear,
    forward=forward_linear,
    outputs="any",
)
