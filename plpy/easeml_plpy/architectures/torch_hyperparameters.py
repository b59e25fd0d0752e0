"""Hyperparameters that torch architectures share: the optimiser, its schedule and the batch; more for tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from easeml_plpy.architectures.hyperparameter import Hyperparameter, Setting, magnitude
from easeml_plpy.architectures.tables.target_transforms import TARGET_TRANSFORM
from easeml_plpy.server.value_types import JSON

TORCH_HYPERPARAMETERS = (
    Hyperparameter(
        "optimizer",
        "categorical",
        "adam",
        "the rule that turns gradients into steps",
        choices=("sgd", "adam", "adamw"),
    ),
    magnitude(
        "learning_rate",
        1e-3,
        "the size of a step before the schedule scales it",
        legal=(1e-8, 1e3),
        search=(1e-4, 3e-2),
    ),
    Hyperparameter(
        "momentum",
        "float",
        0.9,
        "the share of the last step that sgd keeps",
        low=0.0,
        high=0.999,
    ),
    Hyperparameter(
        "weight_decay",
        "float",
        0.0,
        "the pull of weights towards zero (decoupled in adamw)",
        low=0.0,
        high=10.0,
        search=[0.0, 1e-5, 1e-4, 1e-3],
    ),
    Hyperparameter(
        "batch_size",
        "integer",
        64,
        "rows per step",
        low=1,
        high=65536,
        log=True,
        search=[32, 64, 128, 256],
    ),
    Hyperparameter(
        "schedule",
        "categorical",
        "constant",
        "how the learning rate falls over all steps of the trial",
        choices=("constant", "cosine", "step"),
        search=["constant", "cosine"],
    ),
)

PER_TRIAL = ("learning_rate", "weight_decay", "momentum", "schedule", "dropout", "averaging")
"""In which trials that train as one computation may differ: columns beside the weights, on which no shape depends."""

ACTIVATION = Hyperparameter(
    "activation",
    "categorical",
    "relu",
    "the function between layers",
    choices=("relu", "tanh", "gelu"),
)

AVERAGING = Hyperparameter(
    "averaging",
    "float",
    0.998,
    "the share of the averaged weights that each step keeps; the average answers (0: the last weights do)",
    low=0.0,
    high=0.99999,
)

LABEL_SMOOTHING = Hyperparameter(
    "label_smoothing",
    "float",
    0.0,
    "the share of each label that is spread over all classes",
    low=0.0,
    high=0.9,
)

CLASS_WEIGHT = Hyperparameter(
    "class_weight",
    "categorical",
    "none",
    "how much a row counts: alike, or as if all classes had as many rows",
    choices=("none", "balanced"),
)

EMBEDDING_SIZE = Hyperparameter(
    "embedding_size",
    "integer",
    16,
    "the length of the vector that each number and each category of a table becomes",
    low=1,
    high=1024,
    log=True,
    search=[8, 16, 24],
)

DROPOUT = Hyperparameter(
    "dropout",
    "float",
    0.0,
    "the share of hidden units silenced at each step",
    low=0.0,
    high=0.95,
    search=[0.0, 0.2, 0.5],
)

COSINE_HYPERPARAMETERS = tuple(
    replace(shared, default="cosine", search=None) if shared.name == "schedule" else shared
    for shared in TORCH_HYPERPARAMETERS
)
"""The rate falls over all epochs: batch normalisation settles meanwhile."""


def shared_settings(config: Mapping[str, JSON]) -> str:
    """Return as text what configs of a network must share for their trials to train as one computation."""
    return json.dumps({name: value for name, value in config.items() if name not in PER_TRIAL}, sort_keys=True)


TABLE_DEFAULTS: dict[str, tuple[Setting, Sequence[Setting] | Mapping[str, JSON] | None]] = {
    "optimizer": ("adamw", None),
    "learning_rate": (2e-3, {"type": "float", "low": 5e-4, "high": 1e-2, "log": True}),
    "weight_decay": (1e-4, [1e-5, 1e-4, 1e-3, 1e-2]),
    "batch_size": (256, [128, 256, 512]),
    "schedule": ("constant", None),
    "dropout": (0.0, [0.0, 0.1, 0.2]),
}
"""Defaults and search spaces that suit networks for tables whose weights are averaged (docs/design/networks.md)."""


def _for_tables(hyperparameter: Hyperparameter) -> Hyperparameter:
    if hyperparameter.name not in TABLE_DEFAULTS:
        return hyperparameter
    default, search = TABLE_DEFAULTS[hyperparameter.name]
    return replace(hyperparameter, default=default, search=search)


TABLE_HYPERPARAMETERS = (
    EMBEDDING_SIZE,
    *map(_for_tables, (DROPOUT, *TORCH_HYPERPARAMETERS)),
    AVERAGING,
    LABEL_SMOOTHING,
    CLASS_WEIGHT,
    TARGET_TRANSFORM,
)
