"""Bins of training rows, and the population stability index over them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from easeml_plpy.columns.encoder import CategoricalField, TensorField, TextField
from easeml_plpy.drift.bins import MISSING, UNKNOWN, CategoryBins, NumberBins
from easeml_plpy.drift.columns import codes_of, values_of
from easeml_plpy.drift.index import LEAST_SHARE, chance_index, level, stability_index


def test_the_index_is_the_sum_over_bins_of_the_difference_of_shares_times_its_logarithm() -> None:
    trained, new = np.array([50, 30, 20]), np.array([2, 6, 2])
    expected = sum((a - e) * math.log(a / e) for e, a in ((0.5, 0.2), (0.3, 0.6), (0.2, 0.2)))
    assert stability_index(trained, new) == pytest.approx(expected)
    assert stability_index(trained, trained * 7) == 0.0


def test_a_bin_without_rows_counts_as_a_ten_thousandth() -> None:
    expected = (1 - 0.5) * math.log(1 / 0.5) + (LEAST_SHARE - 0.5) * math.log(LEAST_SHARE / 0.5)
    assert stability_index(np.array([5, 5]), np.array([3, 0])) == pytest.approx(expected)


def test_few_rows_of_one_population_exceed_chance_by_little_on_average() -> None:
    rng = np.random.default_rng(0)
    trained = NumberBins.of(rng.normal(size=5_000))
    samples = [trained.counts(rng.normal(size=200)) for _ in range(200)]
    indexes = [stability_index(trained.trained, counts) for counts in samples]
    chances = [chance_index(trained.trained, counts) for counts in samples]
    assert np.mean(indexes) == pytest.approx(np.mean(chances), rel=0.2)
    assert np.mean([level(i - c) == "none" for i, c in zip(indexes, chances, strict=True)]) > 0.95
    moved = trained.counts(rng.normal(loc=1.0, size=200))
    assert level(stability_index(trained.trained, moved) - chance_index(trained.trained, moved)) == "large"


def test_numbers_are_binned_by_tenths_and_missing_ones_by_themselves() -> None:
    bins = NumberBins.of(np.append(np.arange(1000.0), [np.nan] * 10))
    assert bins.trained.tolist() == [100] * 10 + [10]
    assert bins.counts(np.array([-5.0, 0.0, 99.0, 100.0, 5000.0, np.nan])).tolist() == [3, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert bins.n_unseen(np.array([-5.0, 0.0, 5000.0, np.nan])) == 2


@pytest.mark.parametrize("values", [[np.nan, np.nan], [3.0, 3.0], [0.0, 1.0, 1.0, 2.0]])
def test_few_different_numbers_have_a_bin_each(values: list[float]) -> None:
    bins = NumberBins.of(np.array(values))
    counts = [*np.unique(np.array(values)[~np.isnan(values)], return_counts=True)[1].tolist()] or [0]
    assert bins.trained.tolist() == [*counts, int(np.isnan(values).sum())]


def test_rare_categories_share_a_bin_and_new_ones_have_another() -> None:
    codes = np.concatenate([np.repeat(np.arange(60), np.arange(60, 0, -1)), [MISSING, 60]])  # 60: none of them
    bins = CategoryBins.of(codes, 60)
    assert bins.trained[:50].tolist() == list(range(60, 10, -1))
    assert bins.trained[50:].tolist() == [sum(range(1, 11)), 1, 1]
    found = bins.counts(np.array([0, 59, UNKNOWN, UNKNOWN, MISSING]))
    assert (found[0], found[50:].tolist()) == (1, [1, 2, 1])
    assert bins.n_unseen(np.array([0, UNKNOWN, MISSING])) == 1


def test_texts_become_codes_of_categories() -> None:
    field = CategoricalField(column="colour", type="text", categories=("red", "green"))
    assert codes_of(field, ["green", None, "blue", "red"]).tolist() == [1, MISSING, UNKNOWN, 0]


def test_arrays_are_compared_by_their_means_and_texts_by_their_words() -> None:
    array = TensorField(column="a", type="_float4", dtype="f4", shape=(2,))
    means = values_of(array, np.array([[1, 3], [np.nan, 5], [np.nan, np.nan]], np.float32))
    assert means[:2].tolist() == [2.0, 5.0]
    assert np.isnan(means[2])
    text = TextField(column="t", type="text", analyzer="words", width=3)
    words = values_of(text, np.array([[4, 9, -1], [-2, -1, -1]], np.int32))
    assert words[0] == 2.0
    assert np.isnan(words[1])
