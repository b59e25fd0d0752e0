"""A process that takes over goes on as the one before would have, at any instant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.decisions.tenancy.greedy import RULES, Greedy
from easeml_db.decisions.tenancy.hybrid import Hybrid
from easeml_db.decisions.tenancy.policies import POLICIES
from easeml_experiments.tenants.baseline_policies import Fcfs, Random

SEEDS = st.integers(0, 1000)
# begin a play, finish one of those under way (by its share of the list), a tenant arrives, a tenant leaves
MOVES = st.lists(st.tuples(st.sampled_from("bbbbffjl"), st.floats(0, 0.999)), max_size=40)


def move(world, kind: str, share: float) -> object:
    """One event; return what can be seen of it."""
    if kind == "b":
        return world.begin()
    if kind == "f" and world.pending:
        return world.finish(int(share * len(world.pending)))
    if kind == "j":
        return world.join(weight=1.0 + round(3 * share))
    if kind == "l" and world.selector.bandits:
        world.leave(list(world.selector.bandits)[int(share * len(world.selector.bandits))])
    return None


def assert_same_after_restarts(disturbed, undisturbed, moves, restarts) -> None:
    for k, each in enumerate(moves):
        if k in restarts:
            disturbed.restart()
        assert move(disturbed, *each) == move(undisturbed, *each)
    assert disturbed.opened == undisturbed.opened


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30)
@given(seed=SEEDS, moves=MOVES, restarts=st.sets(st.integers(0, 39), min_size=1, max_size=4))
def test_decisions_after_a_restart_are_those_of_the_undisturbed_process(
    new_world, policy, seed, moves, restarts
) -> None:
    worlds = [new_world(policy, 3, seed=seed) for _ in range(2)]
    assert_same_after_restarts(*worlds, moves, restarts)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("restart", [5, 11, 14, 17, 20, 30, 40])
def test_hybrid_goes_on_while_it_nears_freezing_and_when_it_is_frozen(new_world, rule: str, restart: int) -> None:
    disturbed, undisturbed = (
        new_world(lambda: Hybrid(greedy=Greedy(rule, seed=1)), 3, seed=4, allow_replays=True) for _ in range(2)
    )
    undisturbed.steps(60)
    disturbed.steps(restart)
    disturbed.restart()
    disturbed.steps(60 - restart)
    assert disturbed.opened == undisturbed.opened
    assert disturbed.selector.policy.n_freezes == undisturbed.selector.policy.n_freezes == 1


@pytest.mark.parametrize("policy", ["hybrid", "round_robin", Random])
def test_those_that_left_or_arrived_since_the_memory_was_written_disturb_nothing(new_world, policy: Any) -> None:
    disturbed, undisturbed = (new_world(policy, 4, seed=5) for _ in range(2))
    for world in (disturbed, undisturbed):
        world.steps(9)
    written = disturbed.selector.memory()  # as it was kept with the last decision
    for world in (disturbed, undisturbed):
        world.leave(1)
        world.join()
    disturbed.restart(written)
    assert disturbed.play_out() == undisturbed.play_out()


def test_a_restart_repeats_no_draws(new_world) -> None:
    def served(n_restarts: int) -> list[int]:
        world = new_world(Random, 6, 40)
        world.steps(6)
        for _ in range(n_restarts):
            world.steps(20)
            world.restart()
        return world.steps(20)

    assert served(1) != served(0)


def test_results_that_came_in_another_order_than_plays_began_leave_the_same_standing(new_world) -> None:
    world = new_world("greedy", 1)
    world.begin()
    world.begin()
    world.finish(1)
    world.finish(0)
    before = world.selector.bandits[0]
    world.restart()
    after = world.selector.bandits[0]
    assert (after.sig, after.least_bound, after.best, after.t) == (
        before.sig,
        before.least_bound,
        before.best,
        before.t,
    )
    np.testing.assert_array_equal(after.bounds, before.bounds)


def test_a_policy_without_memory_needs_none(new_world) -> None:
    world = new_world(Fcfs, 2)
    assert world.selector.memory() == {}
    world.restart()
    assert world.steps(2) == [0, 1]
