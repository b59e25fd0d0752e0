"""Which numbers of slots are tried."""

from __future__ import annotations

import pytest

from easeml_db.decisions.planner.steps import candidates, next_smaller, options
from tests.unit.planner.jobs import plan, prices, simulator, table_2


@pytest.mark.parametrize(
    ("n_trials", "start", "expected"), [(10, 24, [20, 10, 5, 2, 1]), (3, 16, [15, 12, 9, 6, 3, 1])]
)
def test_a_stage_is_lowered_through_multiples_and_divisors(n_trials: int, start: int, expected: list[int]) -> None:
    found, n_slots = [], next_smaller(start, n_trials)
    while n_slots is not None:
        found.append(n_slots)
        n_slots = next_smaller(n_slots, n_trials)
    assert found == expected


def test_candidates_keep_to_the_instances_there_are() -> None:
    (instance,) = prices(4, max_instances=3).types
    assert candidates(100, instance, 8) == list(range(1, 13))


def test_no_option_is_worse_in_every_respect_than_another() -> None:
    """On instances of 4 slots, 10 trials that keep their slots end no sooner on 6 slots than on 5, on 8 no later."""
    found = options(table_2(), 1, 0)
    assert found[:4] == [4, 5, 10, 20]


def test_options_know_that_more_slots_than_trials_can_use_are_idle() -> None:
    assert max(options(table_2(), 3, 0)) == 8
    assert simulator(table_2().job).predict(plan(32, 20, 12, 8)).mean_seconds > 0
