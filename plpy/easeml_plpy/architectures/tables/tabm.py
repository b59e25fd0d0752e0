"""TabM (Gorishniy et al., ICLR 2025): one network that predicts like an ensemble of k, whose members share most
weights.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.tables import numpy_layers
from easeml_plpy.architectures.tables.mlp import first_layer
from easeml_plpy.architectures.tables.numpy_layers import Layer, Weights
from easeml_plpy.architectures.tables.table_size import first_layer_size
from easeml_plpy.architectures.tables.target_transforms import object_to_transform
from easeml_plpy.architectures.torch_hyperparameters import TABLE_HYPERPARAMETERS
from easeml_plpy.columns.task import Task
from easeml_plpy.server.value_types import Floats

if TYPE_CHECKING:
    from torch import nn


def build_tabm(task: Task, config: Config) -> nn.Module:
    """Build a network from (n, *input_shape) to (n, members, n_outputs)."""
    from tabm import EnsembleView, LinearEnsemble, MLPBackboneBatchEnsemble
    from torch import nn

    first, n_features = first_layer(task, config)
    width, k = config.integer("width"), config.integer("n_members")
    backbone = MLPBackboneBatchEnsemble(
        d_in=n_features, n_blocks=config.integer("n_blocks"), d_block=width, dropout=config.number("dropout"), k=k,
        tabm_init=True, scaling_init="random-signs", start_scaling_init_chunks=None,
    )  # fmt: skip
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=first, members=EnsembleView(k=k), backbone=backbone)
    layers["output"] = LinearEnsemble(width, task.n_outputs, k=k)
    return nn.Sequential(layers)


def forward_tabm(task: Task, config: Config, weights: Weights) -> Layer:
    """Return the network as a function of numpy, to (n, members, n_outputs)."""
    layers = [numpy_layers.first_layer(task.layout, weights, "flatten"), lambda rows: rows[:, None]]
    layers += [_forward_members(weights, f"backbone.blocks.{index}.0") for index in range(config.integer("n_blocks"))]
    weight, bias = weights["output.weight"], weights["output.bias"]
    return numpy_layers.sequence([*layers, lambda rows: (rows.swapaxes(0, 1) @ weight).swapaxes(0, 1) + bias])


def _forward_members(weights: Weights, name: str) -> Layer:
    """Return a LinearBatchEnsemble and the ReLU after it: members share the weight, and scale its inputs and outputs.

    All members of all rows are multiplied at once: one by one, each row would read the whole weight. A row by itself
    waits for fewer dimensions, too.
    """
    weight, r, s, bias = (weights[f"{name}.{part}"] for part in ("weight", "r", "s", "bias"))
    shared = np.ascontiguousarray(weight.T)
    n_features, zeros = len(shared), np.zeros_like(s)  # numpy takes three times as long to compare with one number

    def forward(rows: Floats) -> Floats:
        outputs: Floats
        if len(rows) == 1:
            outputs = np.dot(rows[0] * r, shared)
        else:
            outputs = ((rows * r).reshape(-1, n_features) @ shared).reshape(len(rows), *s.shape)
        outputs *= s
        outputs += bias
        np.maximum(outputs, zeros, out=outputs)
        return outputs if len(rows) > 1 else outputs[None]

    return forward


def tabm_size(task: Task, config: Config) -> Size:
    """Return the size of the network that the config asks for."""
    first, n_features = first_layer_size(task, config.integer("embedding_size"))
    width, k = config.integer("width"), config.integer("n_members")
    widths = [n_features, *[width] * config.integer("n_blocks")]
    hidden = sum(before * after + k * (before + 2 * after) for before, after in pairwise(widths))
    return first + Size(hidden + k * (width + 1) * task.n_outputs, k * (sum(widths) + task.n_outputs))


TABM = Architecture(
    name="tabm",
    trainer="torch",
    summary="TabM: a network over embedded columns of a table that answers as the mean of many with shared weights",
    hyperparameters=(
        Hyperparameter(
            "width",
            "integer",
            128,
            "the width of each hidden layer",
            low=1,
            high=16384,
            log=True,
            search=[64, 128, 256],
        ),
        Hyperparameter("n_blocks", "integer", 2, "the number of hidden layers", low=1, high=16, search=[1, 2, 3]),
        Hyperparameter(
            "n_members", "integer", 8, "how many networks share the weights", low=1, high=64, log=True, search=[8, 16]
        ),
        *TABLE_HYPERPARAMETERS,
    ),
    build=build_tabm,
    forward=forward_tabm,
    size=tabm_size,
    view="table",
    config_objection=object_to_transform,
)
