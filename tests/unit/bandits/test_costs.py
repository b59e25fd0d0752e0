"""Costs that decisions divide by: in units of their mean, and positive."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.bandits.costs import normalised
from easeml_db.errors import InvalidArgument

TENANTS = st.lists(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=6).map(np.array), min_size=1, max_size=5)


@given(TENANTS)
def test_the_mean_over_all_cells_is_one(costs: list[np.ndarray]) -> None:
    units = normalised(costs)
    assert [len(one) for one in units] == [len(one) for one in costs]
    assert np.concatenate(units).mean() == pytest.approx(1.0)


@given(TENANTS, st.floats(1e-3, 1e3))
def test_seconds_or_hours_make_no_difference(costs: list[np.ndarray], factor: float) -> None:
    for one, other in zip(normalised(costs), normalised([each * factor for each in costs]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_costs_of_different_tenants_stay_comparable() -> None:
    cheap, dear = normalised([np.array([1.0, 1.0]), np.array([4.0, 2.0])])
    assert cheap.tolist() == [0.5, 0.5]
    assert dear.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_a_cost_that_is_not_positive_is_refused(wrong: float) -> None:
    with pytest.raises(InvalidArgument, match="costs: expected positive numbers, got"):
        normalised([np.array([1.0, wrong])])


def test_no_tenants_have_no_costs() -> None:
    assert normalised([]) == []
