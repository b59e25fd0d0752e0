"""Numbers of a row outside the range of the training rows, which count as its nearest end (encoding.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import gt, lt
from typing import TypeAlias

import numpy as np

from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.numeric_fields import NumberField, NumericField, ObjectsField, TensorField
from easeml_plpy.columns.one_row_math import RowNumbers
from easeml_plpy.server.value_types import Array

Input: TypeAlias = NumberField | CategoricalField | TextField


@dataclass(frozen=True, eq=False)
class RowBounds:
    """The range of each number of a row, all fields one after another, and the place of the field it belongs to; what
    is no number, or has no range, has infinite bounds."""

    low: Array
    high: Array
    owners: Array

    @cached_property
    def lists(self) -> tuple[list[float], list[float]]:
        """Return the bounds as Python counts."""
        return self.low.tolist(), self.high.tolist()

    def hold(self, row: RowNumbers) -> bool:
        """Return whether all numbers of a row are within their range, as NaN is."""
        low, high = self.lists
        return not (any(map(lt, row.values, low)) or any(map(gt, row.values, high)))


def row_bounds(inputs: Sequence[Input]) -> RowBounds | None:
    """Return the bounds of a row; None if no input has any."""
    if any(isinstance(field, ObjectsField) for field in inputs):
        return None  # a series or tree of any length
    sizes = [math.prod(field.shape) for field in inputs]
    owners = np.repeat(np.arange(len(inputs)), sizes)
    low, high = np.full(len(owners), -np.inf), np.full(len(owners), np.inf)
    for place, field in enumerate(inputs):
        if isinstance(field, NumericField | TensorField) and field.range is not None:
            low[owners == place], high[owners == place] = field.range
    return None if np.isneginf(low).all() else RowBounds(low, high, owners)


def clipped_inputs(inputs: Sequence[Input], bounds: RowBounds | None, fields: Sequence[Array]) -> list[str] | None:
    """Return the names of the inputs of one row with a number beyond its range; None if there are none."""
    if bounds is None or (isinstance(fields, RowNumbers) and bounds.hold(fields)):
        return None
    row = np.concatenate([field.ravel() for field in fields])
    is_beyond = (row < bounds.low) | (row > bounds.high)
    if not is_beyond.any():
        return None
    return [inputs[place].column for place in np.unique(bounds.owners[is_beyond])]
