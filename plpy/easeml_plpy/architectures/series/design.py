"""Common parts of networks for series: how they read an array as a series, and how they are trained.

A series is an array (steps,) or (steps, channels): one number or several at each step, the first step first. Series of
unequal length are padded behind their last step; a last column marks the steps that exist (task.Objects).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter, Setting
from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.torch_hyperparameters import (
    AVERAGING,
    CLASS_WEIGHT,
    DROPOUT,
    LABEL_SMOOTHING,
    TORCH_HYPERPARAMETERS,
)
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn

SERIES_RANKS = (1, 2)
DEFAULTS: dict[str, Setting] = {"optimizer": "adamw", "learning_rate": 2e-3, "weight_decay": 1e-4, "batch_size": 32}
SEARCHED = ("learning_rate", "weight_decay", "batch_size")

SERIES_TRAINING = (
    *(
        replace(
            base, default=DEFAULTS.get(base.name, base.default), search=base.search if base.name in SEARCHED else None
        )
        for base in TORCH_HYPERPARAMETERS
    ),
    AVERAGING,
    LABEL_SMOOTHING,
    CLASS_WEIGHT,
)
"""Their averaged weights answer, and the rate stays constant: the metric of an early epoch is that of a whole run."""


class Series(NamedTuple):
    """The sizes of a series."""

    n_steps: int
    n_channels: int


class Tokens(NamedTuple):
    """How a series is cut into tokens of several steps."""

    n_steps: int
    n_channels: int
    n_tokens: int


def series_of(task: Task) -> Series:
    """Return how an input of rank 1 or 2 is read; of series of unequal length the longest."""
    if task.objects is not None:
        return Series(task.input_shape[0], task.objects.n_numbers)
    return Series(task.input_shape[0], task.input_shape[1] if len(task.input_shape) == 2 else 1)


def width(default: int, summary: str) -> Hyperparameter:
    """Return the size of a network's state at each step."""
    choices = [default // 2, default, 2 * default]
    return Hyperparameter("width", "integer", default, summary, low=1, high=16384, log=True, search=choices)


def n_layers(default: int, summary: str) -> Hyperparameter:
    """Return the number of stacked layers."""
    return Hyperparameter("n_layers", "integer", default, summary, low=1, high=32, search=[1, 2])


def series_architecture(
    name: str,
    summary: str,
    hyperparameters: tuple[Hyperparameter, ...],
    build: Callable[[Task, Config], nn.Module],
    size: Callable[[Task, Config], Size],
) -> Architecture:
    """Return an architecture for series."""
    return Architecture(
        name=name,
        trainer="torch",
        summary=summary,
        hyperparameters=(*hyperparameters, DROPOUT, *SERIES_TRAINING),
        build=build,
        size=size,
        input_ranks=SERIES_RANKS,
        made_for=("series",),
        is_stackable=False,
    )
