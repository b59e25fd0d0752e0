"""Rows as the trees of forests compare them: float32, categories in the order of their mean targets, missing numbers
filled in.

A category is replaced by its place in the order of mean targets over the training rows; the mean of a category with few
rows is pulled towards that of all rows. Trees split along an order, and the order of the codes means nothing. (The
means themselves are spaced unevenly, and random thresholds between them do worse.) The replacements are computed once,
on the first epoch's rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import CorruptCheckpoint
from easeml_plpy.server.value_types import Array
from easeml_plpy.trainers.training_rows import Rows

LARGEST = float(np.finfo(np.float32).max)
PRIOR_ROWS = 10.0  # of the mean of all, beside a category's own
_FILL = "fill"


@dataclass(frozen=True)
class RowConstants:
    """The replacement of a missing number, by column, and of each code of the categorical columns."""

    fill: npt.NDArray[np.float32]
    of_codes: Mapping[int, npt.NDArray[np.float32]]

    def rows(self, inputs: Rows) -> npt.NDArray[np.float32]:
        """Return rows as trees compare them."""
        rows = _placed(numbers(inputs), self.of_codes)
        return np.where(np.isnan(rows), self.fill, rows)

    def arrays(self) -> dict[str, Array]:
        """Return the constants by name."""
        return {_FILL: self.fill, **{str(column): of_code for column, of_code in self.of_codes.items()}}


def constants_of(task: Task, inputs: Rows, targets: Array) -> RowConstants:
    """Measure the constants on training rows."""
    rows = numbers(inputs)
    values = targets.astype(np.float64)
    if task.kind == "classification":
        values = (targets == np.bincount(targets).argmax()).astype(np.float64)
    of_codes = {k: _ranks(rows[:, k], values, c.cardinality) for k, c in enumerate(task.layout) if c.kind == "category"}
    return RowConstants(fill_of(_placed(rows, of_codes)), of_codes)


def constants_from(arrays: Mapping[str, Array], task: Task) -> RowConstants:
    """Return the constants of a state. Raises CorruptCheckpoint."""
    names = {_FILL, *(str(k) for k, column in enumerate(task.layout) if column.kind == "category")}
    if set(arrays) != names or len(arrays[_FILL]) != task.n_features:
        raise CorruptCheckpoint(f"state has constants of the columns {sorted(arrays)}, expected {sorted(names)}")
    return RowConstants(arrays[_FILL], {int(name): array for name, array in arrays.items() if name != _FILL})


def numbers(inputs: Rows) -> npt.NDArray[np.float32]:
    """Return rows in float32, numbers beyond its range as its largest."""
    return np.asarray(inputs).reshape(len(inputs), -1).clip(-LARGEST, LARGEST).astype(np.float32)


def fill_of(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the replacement of a missing number, by column: slightly less than the minimum."""
    is_there = ~np.isnan(rows)
    least = np.where(is_there, rows, LARGEST).min(axis=0).astype(np.float64)
    most = np.where(is_there, rows, -LARGEST).max(axis=0).astype(np.float64)
    below = least - np.maximum((most - least) / 16, np.maximum(np.abs(least), 1) / 1024)
    return np.where(is_there.any(axis=0), below.clip(-LARGEST, LARGEST), 0).astype(np.float32)


def _ranks(codes: Array, values: Array, cardinality: int) -> npt.NDArray[np.float32]:
    """Return the place of each code in the order of mean targets, from 0; the middle for one that no row has."""
    is_there = ~np.isnan(codes)
    present = codes[is_there].astype(np.int64).clip(0, cardinality - 1)
    counts = np.bincount(present, minlength=cardinality)
    sums = np.bincount(present, values[is_there], minlength=cardinality)
    means = (sums + PRIOR_ROWS * values.mean()) / (counts + PRIOR_ROWS)
    seen = np.flatnonzero(counts)
    ranks = np.full(cardinality, (len(seen) - 1) / 2, np.float32)
    ranks[seen[np.argsort(means[seen], kind="stable")]] = np.arange(len(seen))
    return ranks


def _placed(rows: npt.NDArray[np.float32], of_codes: Mapping[int, Array]) -> npt.NDArray[np.float32]:
    """Replace the codes, in place."""
    for column, of_code in of_codes.items():
        codes = rows[:, column]
        is_there = ~np.isnan(codes)
        rows[is_there, column] = of_code[codes[is_there].astype(np.int64).clip(0, len(of_code) - 1)]
    return rows
