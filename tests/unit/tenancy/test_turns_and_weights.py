"""Turns of round robin and random, and what weights do under every policy."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.tenancy.ei_rate import EiRate
from easeml_db.decisions.tenancy.standings import Standings
from easeml_db.errors import InvalidArgument
from easeml_experiments.tenants.baseline_policies import Fcfs, Random

WEIGHTS = st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0, 4.0]), min_size=2, max_size=5)


def weighted(new_world, policy: str, weights: list[float]):
    """A pool of endless tenants, after the first service."""
    world = new_world(policy, 0, 2, allow_replays=True)
    for weight in weights:
        world.join(weight=weight)
    world.steps(len(weights))
    return world


def test_equal_tenants_take_turns(new_world) -> None:
    assert weighted(new_world, "round_robin", [1.0] * 3).steps(7) == [0, 1, 2, 0, 1, 2, 0]


def test_turns_skip_the_exhausted(new_world) -> None:
    world = new_world("round_robin", 3, 2)
    assert world.steps(3) == [0, 1, 2]
    world.blocked = frozenset({1})
    assert world.steps(2) == [0, 2]
    world.blocked = frozenset()
    assert world.steps(2) == [1]


@given(WEIGHTS)
def test_round_robin_gives_turns_in_proportion_to_weights(new_world, weights: list[float]) -> None:
    world = weighted(new_world, "round_robin", weights)
    served = Counter()
    for n, tenant in enumerate(world.steps(120), start=1):
        served[tenant] += 1
        for other, weight in enumerate(weights):
            share = weight / sum(weights)
            assert abs(served[other] - share * n) <= 1.0 + share * len(weights)  # never more than a turn each apart


def test_random_draws_in_proportion_to_weights(new_world) -> None:
    served = Counter(weighted(new_world, Random, [1.0, 2.0, 5.0]).steps(2000))
    for tenant, share in enumerate([1 / 8, 2 / 8, 5 / 8]):
        deviation = np.sqrt(2000 * share * (1 - share))
        assert served[tenant] == pytest.approx(2000 * share, abs=4 * deviation)


def test_random_spreads_over_all_that_can_open_an_arm_whatever_the_seed(new_world) -> None:
    firsts = Counter()
    for seed in range(300):
        world = new_world(partial(Random, seed), 3, 2)
        world.steps(3)
        firsts.update(world.steps(1))
    assert all(70 < firsts[tenant] < 130 for tenant in range(3))


def test_fcfs_knows_no_weights(new_world) -> None:
    assert weighted(new_world, Fcfs, [1.0, 100.0]).steps(5) == [0] * 5


@pytest.mark.parametrize("n_before", range(12))
def test_a_late_tenant_of_round_robin_neither_catches_up_nor_waits(new_world, n_before: int) -> None:
    world = weighted(new_world, "round_robin", [1.0] * 3)
    world.steps(n_before)
    late = world.join()
    assert world.steps(1) == [late]  # the first service
    assert world.steps(1) != [late]
    served = Counter(world.steps(4 * 5))
    assert all(abs(served[tenant] - 5) <= 1 for tenant in range(4))


@pytest.mark.parametrize("n_before", range(6))
def test_a_tenant_that_was_blocked_does_not_catch_up(new_world, n_before: int) -> None:
    world = weighted(new_world, "round_robin", [1.0] * 3)
    world.steps(n_before)
    world.blocked = frozenset({1})
    assert 1 not in world.steps(30)
    world.blocked = frozenset()
    assert 4 <= Counter(world.steps(15))[1] <= 6


def test_those_that_stay_keep_their_turns_when_another_leaves(new_world) -> None:
    world = weighted(new_world, "round_robin", [1.0] * 4)
    assert world.steps(2) == [0, 1]
    world.leave(0)
    assert world.steps(6) == [2, 3, 1, 2, 3, 1]


def test_ei_rate_serves_the_largest_score_times_weight() -> None:
    columns = {"n_opened": [1.0] * 3, "sig": [0.1] * 3, "gap": [0.1] * 3, "best": [0.5] * 3, "score": [0.3, 0.2, 0.9]}
    columns |= {"can_open": [True, True, False], "weight": [1.0, 1.0, 1.0]}
    assert EiRate().choose(Standings(**{name: np.array(value) for name, value in columns.items()})).place == 0
    columns["weight"] = [1.0, 2.0, 1.0]
    assert EiRate().choose(Standings(**{name: np.array(value) for name, value in columns.items()})).place == 1


@pytest.mark.parametrize("policy", ["greedy", "hybrid", "round_robin", Random, "ei_rate"])
def test_a_heavier_tenant_is_served_more_often_among_equals(new_world, policy: str) -> None:
    world = new_world(policy, 0, 12)
    for weight in (1.0, 6.0):
        world.join(weight=weight)
    world.qualities[1], world.costs[1][:] = world.qualities[0], world.costs[0]
    world.steps(2)
    served = Counter(world.steps(10))
    assert served[1] > served[0]


@pytest.mark.parametrize("weight", [0.0, -1.0, np.inf, np.nan])
def test_a_weight_that_is_not_positive_is_refused(new_world, weight: float) -> None:
    world = new_world("round_robin", 1)
    with pytest.raises(InvalidArgument, match="weight: expected a positive number"):
        world.selector.set_terms(0, weight=weight)
    bandit = world.selector.bandits[0]
    with pytest.raises(InvalidArgument, match="weight: expected a positive number"):
        world.selector.join("other", bandit, weight=weight)
    assert world.steps(9) == [0] * 4
    world.selector.join("other", bandit, weight=1.0)  # it has not half arrived
