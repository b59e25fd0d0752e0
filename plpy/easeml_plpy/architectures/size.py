"""The size of a config, computed before anything is built: its trainer says what memory it takes at least.

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


@dataclass(frozen=True)
class Size:
    """Numbers that are trained, numbers that layers put out for one row, and sums of trees that a row has."""

    n_parameters: int
    n_outputs_a_row: int
    n_sums_a_row: int = 0

    def __add__(self, other: Size) -> Size:
        """Return the size of both together."""
        return Size(
            self.n_parameters + other.n_parameters,
            self.n_outputs_a_row + other.n_outputs_a_row,
            self.n_sums_a_row + other.n_sums_a_row,
        )


def linear_size(task: Task, config: Config) -> Size:
    """Return the size of one layer from the flattened input to the outputs."""
    return dense_size(task.n_features, (), task)


def dense_size(n_features: int, widths: Sequence[int], task: Task) -> Size:
    """Return the size of layers of these widths, one after another, and the outputs."""
    sizes = [n_features, *widths, task.n_outputs]
    n_parameters = sum((before + 1) * after for before, after in pairwise(sizes))
    return Size(n_parameters, sum(sizes))
