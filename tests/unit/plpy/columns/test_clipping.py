"""Which inputs of a row are beyond what training saw."""

from __future__ import annotations

import numpy as np
import pytest

from easeml_plpy.columns.clipping import clipped_inputs, row_bounds
from easeml_plpy.columns.encoder import CategoricalField, NumericField, TensorField
from easeml_plpy.columns.one_row_math import RowNumbers

INPUTS = (
    NumericField(column="size", type="float8", knots=(np.array([1.0, 2.0, 3.0]),)),
    CategoricalField(column="town", type="text", categories=("a", "b")),
    NumericField(column="old", type="float8"),  # packed before ranges were known
    TensorField(
        column="sides", type="real[]", dtype="f4", shape=(2,), mean=np.zeros(2), scale=np.ones(2),
        knots=(np.array([0.0, 1.0]), np.array([5.0, 6.0])),
    ),
    TensorField(column="image", type="bytea", dtype="u1", shape=(2, 1)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("size", "sides", "clipped"),
    [
        (1.0, (0.0, 6.0), None),
        (np.nan, (np.nan, 5.5), None),
        (3.1, (0.5, 5.5), ["size"]),
        (0.9, (-0.1, 6.1), ["size", "sides"]),
        (1e300, (np.nan, 6.1), ["size", "sides"]),
    ],
)
def test_inputs_with_a_number_beyond_their_range_are_named_once(
    size: float, sides: tuple[float, float], clipped: list[str] | None
) -> None:
    row = [
        np.array([size]), np.array([-1], np.int32), np.array([1e9]), np.array([sides], np.float32),
        np.array([[[0], [255]]], np.uint8),
    ]  # fmt: skip
    assert clipped_inputs(INPUTS, row_bounds(INPUTS), row) == clipped


def test_where_nothing_has_a_range_nothing_is_clipped() -> None:
    assert row_bounds(INPUTS[1:3]) is None
    assert clipped_inputs(INPUTS[1:3], None, [np.array([0]), np.array([1e300])]) is None


@pytest.mark.parametrize(
    ("row", "clipped"),
    [
        ([1.0, 1e9, 3.0], None),
        ([np.nan, 0.0, 2.0], None),
        ([3.1, 0.0, 2.0], ["size"]),
        ([0.9, -1e300, 4.0], ["size", "age"]),
    ],
)
def test_a_row_of_nothing_but_numbers_is_clipped_as_any_other(row: list[float], clipped: list[str] | None) -> None:
    inputs = (INPUTS[0], INPUTS[2], NumericField(column="age", type="int4", knots=(np.array([2.0, 3.0]),)))
    bounds = row_bounds(inputs)
    assert clipped_inputs(inputs, bounds, RowNumbers(row)) == clipped
    assert clipped_inputs(inputs, bounds, [np.array([number]) for number in row]) == clipped
