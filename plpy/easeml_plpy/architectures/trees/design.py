"""Common parts of networks for trees: they go from the leaves to the root, whose state gives the answer.

A tree is an object that links to others by its recursive fields (task.Objects). An object comes before those that it
links to, and each field has weights of its own, so left and right differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.series.design import SERIES_TRAINING, width
from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.torch_hyperparameters import DROPOUT
from easeml_plpy.columns.task import Objects, Task
from easeml_plpy.server.errors import InvalidArgument

if TYPE_CHECKING:
    from torch import nn

    from easeml_plpy.architectures.trees.modules import Cell

HYPERPARAMETERS: tuple[Hyperparameter, ...] = (width(64, "how many numbers each object of a tree keeps"), DROPOUT)


def objects_of(task: Task) -> Objects:
    """Return what an object of the trees holds. Raises InvalidArgument."""
    if task.objects is None:
        raise InvalidArgument("trees go in here, and the task has none")
    return task.objects


def tree_architecture(
    name: str, summary: str, build_cell: Callable[[Objects, int], Cell], n_gates: Callable[[int], tuple[int, int]]
) -> Architecture:
    """Return an architecture for trees.

    `build_cell(objects, width)` gives a cell of modules.py; `n_gates(n_links)` counts the vectors that it computes from
    the numbers of an object, and from the target of each link.
    """

    def build(task: Task, config: Config) -> nn.Module:
        from easeml_plpy.architectures.trees.modules import TreeNetwork

        objects, wide = objects_of(task), config.integer("width")
        return TreeNetwork(objects, build_cell(objects, wide), wide, config.number("dropout"), task.n_outputs)

    def size(task: Task, config: Config) -> Size:
        objects, wide = objects_of(task), config.integer("width")
        of_numbers, of_links = n_gates(objects.n_links)
        cell = (objects.n_numbers + 1) * of_numbers * wide + objects.n_links * wide * of_links * wide
        made = task.input_shape[0] * (of_numbers + of_links) * wide
        return Size(cell + (wide + 1) * task.n_outputs, task.n_features + made + task.n_outputs)

    return Architecture(
        name=name,
        trainer="torch",
        summary=summary,
        hyperparameters=(*HYPERPARAMETERS, *SERIES_TRAINING),
        build=build,
        size=size,
        input_ranks=(2,),
        made_for=("tree",),
        is_stackable=False,
    )
