"""Hyperparameters that every torch architecture shares: the optimiser, its schedule and the batch."""

from __future__ import annotations

from easeml_plpy.architectures.hyperparameter import Hyperparameter, magnitude

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

ACTIVATION = Hyperparameter(
    "activation",
    "categorical",
    "relu",
    "the function between layers",
    choices=("relu", "tanh", "gelu"),
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
