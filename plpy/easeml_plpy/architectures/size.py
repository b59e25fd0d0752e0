"""The memory that a config takes at least, computed before anything is built.

A config whose lower bound exceeds a limit cannot train there. One below the limit may still run out of memory, which
its slot's limit catches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from easeml_plpy.architectures.config import Config
from easeml_plpy.columns.task import Task

FLOAT32_BYTES, FLOAT64_BYTES = 4, 8
BOOSTED_NUMBER_BYTES, LEAF_BYTES = 10, 100  # a number and its bin, twice; a leaf and its node as text
OPTIMIZER_SLOTS = {"adam": 2, "adamw": 2}
"""Numbers that an optimiser keeps for each parameter; sgd keeps one if it has momentum."""


@dataclass(frozen=True)
class Size:
    """Numbers that are trained, and numbers that layers put out for one row."""

    n_parameters: int
    n_outputs_a_row: int

    def __add__(self, other: Size) -> Size:
        """Return the size of both together."""
        return Size(self.n_parameters + other.n_parameters, self.n_outputs_a_row + other.n_outputs_a_row)


def linear_size(task: Task, config: Config) -> Size:
    """Return the size of one layer from the flattened input to the outputs."""
    return dense_size(task.n_features, (), task)


def dense_size(n_features: int, widths: Sequence[int], task: Task) -> Size:
    """Return the size of layers of these widths, one after another, and the outputs."""
    sizes = [n_features, *widths, task.n_outputs]
    n_parameters = sum((before + 1) * after for before, after in pairwise(sizes))
    return Size(n_parameters, sum(sizes))


def torch_bytes(size: Size, config: Config, n_rows: int) -> int:
    """Return the bytes of a step and of the state at its end: parameters, gradients and the optimiser's slots.

    The state is a copy of parameters and slots. A batch has no more rows than its partition.
    """
    optimizer = config.text("optimizer")
    n_slots = OPTIMIZER_SLOTS.get(optimizer, int(config.number("momentum") > 0))
    n_averages = int(bool(config.get("averaging")))
    n_copies = 2 + n_slots + n_averages + (1 + n_slots + n_averages)
    n_rows_at_once = min(config.integer("batch_size"), n_rows)
    return FLOAT32_BYTES * (size.n_parameters * n_copies + n_rows_at_once * size.n_outputs_a_row)


def estimator_bytes(size: Size, config: Config, n_rows: int) -> int:
    """Return the bytes of an estimator's coefficients and of the copy of them that is its state."""
    return FLOAT64_BYTES * 2 * size.n_parameters


def boosting_bytes(size: Size, config: Config, n_rows: int) -> int:
    """Return the bytes of rows as numbers and as bins, of margins with their gradients, and of an epoch's trees."""
    return n_rows * BOOSTED_NUMBER_BYTES * size.n_outputs_a_row + 2 * LEAF_BYTES * size.n_parameters


def forest_bytes(size: Size, config: Config, n_rows: int) -> int:
    """Return the bytes of rows in both precisions and of an epoch's trees, of one leaf each at least, twice."""
    return n_rows * (FLOAT32_BYTES + FLOAT64_BYTES) * size.n_outputs_a_row + 2 * LEAF_BYTES * size.n_parameters
