"""Open-shop planners: feasible always, optimal where theory says so, and never worse than what they start from."""

import builtins
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from easeml_db.decisions.hopper.schedulers.milp import solve_open_shop
from easeml_db.decisions.hopper.schedulers.open_shop import OpenShopSchedule, dense, earliest
from easeml_db.decisions.hopper.schedulers.vector_rearrangement import (
    padded_to_equal_loads,
    steinitz_order,
    vector_rearrangement,
)
from easeml_db.errors import InvalidArgument

lengths = st.one_of(st.just(0.0), st.floats(0.125, 8.0, width=16))
tables = st.tuples(st.integers(1, 6), st.integers(1, 4)).flatmap(lambda shape: arrays(float, shape, elements=lengths))


def bound(seconds):
    return max(seconds.sum(axis=0).max(), seconds.sum(axis=1).max())


def optimum(seconds):
    """The shortest makespan, by trying all orders of all operations."""
    places = list(product(*map(range, seconds.shape)))
    best = np.inf
    for order in permutations(places):
        starts = np.zeros(seconds.shape)
        for rank, place in enumerate(order):
            starts[place] = rank
        ranked = OpenShopSchedule(starts, seconds)
        best = min(best, earliest(ranked).makespan_seconds)
    return best


@settings(max_examples=60, deadline=None)
@given(tables)
def test_schedules_have_no_conflict_and_keep_the_guarantee_of_dense_ones(seconds):
    for schedule in (dense(seconds), vector_rearrangement(seconds)):
        assert not schedule.has_conflict()
        slack = (seconds.shape[1] - 1) * seconds.max()
        assert bound(seconds) - 1e-9 <= schedule.makespan_seconds <= bound(seconds) + slack + 1e-9


@settings(max_examples=40, deadline=None)
@given(tables)
def test_padding_makes_loads_equal_and_steinitz_keeps_prefixes_together(seconds):
    padded = padded_to_equal_loads(seconds)
    assert padded.sum(axis=0) == pytest.approx(np.full(seconds.shape[1], seconds.sum(axis=0).max()))
    assert padded.max() <= seconds.max()
    assert (padded[: len(seconds)] == seconds).all()
    order = steinitz_order(padded[:, :-1] - padded[:, -1:])
    assert sorted(order) == list(range(len(padded)))
    prefixes = np.cumsum(padded[order], axis=0)
    gaps = prefixes.max(axis=1) - prefixes.min(axis=1)
    assert gaps.max() <= 2 * (seconds.shape[1] - 1) * seconds.max() + 1e-6


@pytest.mark.parametrize("p", [2, 3, 4])
def test_vector_rearrangement_is_optimal_where_loads_are_large(p):
    rng = np.random.default_rng(p)
    seconds = rng.uniform(0.5, 1.0, (2 * (p * p + p), p))
    largest = seconds.sum(axis=0).max()
    assert largest >= (p * p + p - 1) * seconds.max()
    schedule = vector_rearrangement(seconds)
    assert not schedule.has_conflict()
    assert schedule.makespan_seconds == pytest.approx(largest)


def test_equal_trials_take_as_many_units_as_there_are():
    assert vector_rearrangement(np.ones((16, 16))).makespan_seconds == 16.0


@pytest.mark.parametrize("seed", range(4))
def test_the_integer_program_finds_the_optimum_of_small_cases(seed):
    seconds = np.random.default_rng(seed).integers(1, 9, (3, 2)).astype(float)
    schedule, is_optimal, lower = solve_open_shop(seconds, time_limit_seconds=10.0)
    assert is_optimal
    assert not schedule.has_conflict()
    assert schedule.makespan_seconds == pytest.approx(optimum(seconds))
    assert lower <= schedule.makespan_seconds + 1e-9


def test_the_integer_program_is_never_worse_than_its_hint():
    seconds = np.random.default_rng(5).lognormal(0.0, 1.0, (12, 6))
    hint = vector_rearrangement(seconds)
    schedule, _, _ = solve_open_shop(seconds, time_limit_seconds=0.01, hint=hint)
    assert schedule.makespan_seconds <= hint.makespan_seconds
    assert not schedule.has_conflict()


def test_operations_without_length_are_scheduled_too():
    seconds = np.zeros((3, 2))
    schedule, is_optimal, _ = solve_open_shop(seconds, time_limit_seconds=1.0)
    assert is_optimal
    assert [sorted(order) for order in schedule.orders()] == [[0, 1, 2]] * 2


def test_without_or_tools_the_way_out_is_named(monkeypatch):
    importing = builtins.__import__

    def without(name, *arguments, **named):
        if name.startswith("ortools"):
            raise ImportError(name)
        return importing(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidArgument, match="OR-Tools") as caught:
        solve_open_shop(np.ones((2, 2)), time_limit_seconds=1.0)
    assert "easeml-db[milp]" in caught.value.hint
