"""A row of nothing but numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from easeml_plpy.columns.one_row_math import RowNumbers, numbers_of


def test_a_row_of_numbers_is_a_sequence_of_fields() -> None:
    row = RowNumbers([1.0, math.nan, 3.0])
    assert [field.shape for field in row] == [(1,)] * 3
    np.testing.assert_array_equal(np.concatenate(row), [1.0, np.nan, 3.0])
    np.testing.assert_array_equal(numbers_of(row[1:]), [np.nan, 3.0])
    np.testing.assert_array_equal(numbers_of([np.array([2.0]), np.array([4.0])]), [2.0, 4.0])


@pytest.mark.parametrize(
    ("values", "are_finite"),
    [
        ([1.0, -2.0], True),
        ([1.0, math.nan], True),  # missing
        ([1e308, 1e308], True),  # only their sum is infinite
        ([math.inf, math.nan], False),
        ([math.nan, -math.inf], False),
        ([math.inf, -math.inf], False),
    ],
)
def test_a_row_with_an_infinite_number_is_told(values: list[float], are_finite: bool) -> None:
    assert RowNumbers(values).are_finite() is are_finite
