"""Knots of numbers: quantiles of a sample, few for wide tables, and the true range at the ends."""

from __future__ import annotations

import numpy as np

from easeml_plpy.columns.encoder import Field, NumericField, TensorField
from easeml_plpy.columns.quantiles import ALL_KNOTS, LEAST_KNOTS, MOST_KNOTS, MOST_ROWS, KnotSample
from easeml_plpy.server.value_types import Array

NUMBER = NumericField(column="n", type="float8")


def knots_of(field: Field, values: Array, *, n_numbers: int = 1, block: int = 1000) -> list[list[float]]:
    sample = KnotSample(field, len(values), n_numbers)
    for start in range(0, len(values), block):
        sample.add(*sample.look(values[start : start + block], start))
    return [each.tolist() for each in sample.knots()]


def test_few_distinct_numbers_are_their_own_knots() -> None:
    assert knots_of(NUMBER, np.array([3.0, 1.0, np.nan, 3.0, 2.0])) == [[1.0, 2.0, 3.0]]


def test_a_column_that_is_always_missing_has_no_knots() -> None:
    assert knots_of(NUMBER, np.full(5, np.nan)) == [[]]


def test_knots_split_the_rows_into_equal_shares() -> None:
    values = np.random.default_rng(0).lognormal(size=20_000)
    [knots] = knots_of(NUMBER, values)
    assert len(knots) == MOST_KNOTS
    shares = np.histogram(values, knots)[0] / len(values)
    assert abs(shares * (MOST_KNOTS - 1) - 1).max() < 0.05
    assert [knots[0], knots[-1]] == [values.min(), values.max()]


def test_the_ends_are_those_of_all_rows_though_only_some_are_sampled() -> None:
    values = np.arange(3.0 * MOST_ROWS)[::-1].copy()
    values[1] = 1e9  # the second row is in no sample of every third
    [knots] = knots_of(NUMBER, values, block=7777)
    assert knots[-1] == 1e9
    assert len(knots) <= MOST_KNOTS + 2


def test_blocks_of_any_size_give_the_same_knots() -> None:
    values = np.random.default_rng(1).normal(size=2 * MOST_ROWS + 3)
    assert knots_of(NUMBER, values, block=8192) == knots_of(NUMBER, values, block=333)


def test_a_vector_has_knots_for_each_position_and_an_image_for_all_pixels_at_once() -> None:
    vector = TensorField(column="v", type="_float8", dtype="f8", shape=(2,))
    assert knots_of(vector, np.array([[1.0, 5.0], [2.0, np.nan]])) == [[1.0, 2.0], [5.0]]
    image = TensorField(column="i", type="bytea", dtype="u1", shape=(2, 2))
    assert knots_of(image, np.array([[[0, 3], [7, 3]]], np.uint8)) == [[0.0, 3.0, 7.0]]


def test_of_an_array_alone_only_the_range_is_kept() -> None:
    sample = KnotSample(TensorField(column="v", type="_float8", dtype="f8", shape=(2,)), 3, 2, is_alone=True)
    sample.add(*sample.look(np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 5.0]]), 0))
    assert [each.tolist() for each in sample.knots()] == [[1.0, 3.0], [5.0]]


def test_wide_tables_have_fewer_knots() -> None:
    values = np.random.default_rng(2).normal(size=5000)
    [wide] = knots_of(NUMBER, values, n_numbers=5000)
    assert len(wide) <= ALL_KNOTS // 5000 + 2
    [widest] = knots_of(NUMBER, values, n_numbers=10**6)
    assert len(widest) <= LEAST_KNOTS + 2
