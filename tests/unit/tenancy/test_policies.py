"""What holds for every policy: one suite over all of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.decisions.bandits.prior import independent_prior
from easeml_db.decisions.tenancy.policies import DEFAULT, POLICIES, list_policies, make_policy
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.errors import InvalidArgument

every_policy = pytest.mark.parametrize("policy", POLICIES)
SEEDS = st.integers(0, 1000)


@every_policy
@settings(max_examples=12)
@given(seed=SEEDS)
def test_each_tenant_is_served_once_first_in_order_of_arrival(new_world, policy: str, seed: int) -> None:
    world = new_world(policy, 5, seed=seed)
    assert world.steps(5) == [0, 1, 2, 3, 4]


@every_policy
def test_a_tenant_that_arrives_later_is_served_next(new_world, policy: str) -> None:
    world = new_world(policy, 3)
    world.steps(5)
    late = [world.join(), world.join()]
    assert world.steps(2) == late


@every_policy
@settings(max_examples=12)
@given(seed=SEEDS, n_tenants=st.integers(1, 5), n_arms=st.integers(1, 5))
def test_every_arm_of_every_tenant_is_played_once_in_the_end(new_world, policy, seed, n_tenants, n_arms) -> None:
    plays = new_world(policy, n_tenants, n_arms, seed=seed).play_out()
    assert sorted(plays) == [(tenant, arm) for tenant in range(n_tenants) for arm in range(n_arms)]


@every_policy
@settings(max_examples=12)
@given(data=st.data())
def test_several_plays_under_way_repeat_no_arm_and_lose_none(new_world, policy: str, data: st.DataObject) -> None:
    world = new_world(policy, 3, seed=data.draw(SEEDS))
    while world.pending or world.selector.standings.can_open.any():
        if world.pending and data.draw(st.booleans()):
            world.finish(data.draw(st.integers(0, len(world.pending) - 1)))
        elif world.begin() is None:
            world.finish()
    assert Counter(world.opened) == Counter((tenant, arm) for tenant in range(3) for arm in range(4))


@every_policy
@settings(max_examples=12)
@given(seed=SEEDS)
def test_decisions_depend_on_the_seed_alone(new_world, policy: str, seed: int) -> None:
    assert new_world(policy, 4, seed=seed).play_out() == new_world(policy, 4, seed=seed).play_out()


@every_policy
@settings(max_examples=12)
@given(data=st.data())
def test_nobody_exhausted_blocked_or_absent_is_served(new_world, policy: str, data: st.DataObject) -> None:
    world = new_world(policy, 3, 3, seed=data.draw(SEEDS))
    here = {0, 1, 2}
    for _ in range(25):
        event = data.draw(st.sampled_from(["step", "step", "step", "join", "leave"]))
        if event == "join":
            here.add(world.join())
        elif event == "leave" and here:
            left = data.draw(st.sampled_from(sorted(here)))
            world.leave(left)
            here.remove(left)
        world.blocked = frozenset(data.draw(st.lists(st.sampled_from(sorted(here) or [99]), max_size=3)))
        played = Counter(tenant for tenant, _ in world.opened)
        able = {tenant for tenant in here - world.blocked if played[tenant] < 3}
        decision = world.step()
        assert (decision is None) == (not able)
        assert decision is None or decision.run in able
        assert decision is None or decision.candidates <= able
    assert len(world.opened) == len(set(world.opened))


@every_policy
def test_what_is_alike_is_served_lowest_tenant_first_and_lowest_arm_first(new_world, policy: str) -> None:
    world = new_world(policy)
    world.prior = independent_prior(3)
    for _ in range(3):
        world.selector.join(tenant := len(world.costs), RunBandit(world.prior, np.ones(3)))
        world.qualities[tenant], world.costs[tenant] = np.full(3, 0.5), np.ones(3)
    plays = world.play_out()
    for tenant in range(3):
        assert [arm for run, arm in plays if run == tenant] == [0, 1, 2]
    assert plays[3][0] == 0


@every_policy
def test_a_tenant_without_arms_is_never_served_and_disturbs_nobody(new_world, policy: str) -> None:
    world = new_world(policy, 2)
    world.selector.join("empty", RunBandit(world.prior, np.ones(4), offered=np.zeros(4, dtype=bool)))
    assert sorted(world.play_out()) == [(tenant, arm) for tenant in range(2) for arm in range(4)]


@every_policy
def test_without_tenants_there_is_no_decision(new_world, policy: str) -> None:
    world = new_world(policy, 1, 1)
    assert world.play_out() == [(0, 0)]
    world.leave(0)
    assert world.step() is None


@every_policy
def test_a_tenant_that_comes_back_begins_afresh(new_world, policy: str) -> None:
    world = new_world(policy, 2)
    world.steps(5)
    world.leave(0)
    world.selector.join(0, RunBandit(world.prior, world.costs[0]))
    decision = world.step()
    assert decision is not None
    assert (decision.run, decision.phase) == (0, "first_service")


@every_policy
def test_with_replays_play_goes_on_for_ever(new_world, policy: str) -> None:
    world = new_world(policy, 2, 2, allow_replays=True)
    assert len(world.steps(30)) == 30
    assert max(Counter(world.opened).values()) > 1


def test_a_run_joins_only_once(new_world) -> None:
    world = new_world("greedy", 1)
    with pytest.raises(InvalidArgument, match="run 0 has joined already"):
        world.selector.join(0, RunBandit(world.prior, np.ones(4)))


def test_an_unknown_policy_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InvalidArgument, match="no tenancy policy 'lottery'") as caught:
        make_policy("lottery")
    assert caught.value.hint is not None
    assert all(name in caught.value.hint for name in POLICIES)


def test_every_policy_is_listed_and_one_is_the_default() -> None:
    rows = list_policies()
    assert [row["policy"] for row in rows] == list(POLICIES)
    assert [row["policy"] for row in rows if row["is_default"]] == [DEFAULT]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_decision_changes_nothing_before_it_is_carried_out(new_world, policy: str) -> None:
    world, twin = new_world(policy, 4, seed=5), new_world(policy, 4, seed=5)
    while (decision := twin.begin()) is not None:
        memory = world.selector.memory()
        for _ in range(3):
            again = world.selector.choose()
            assert again == decision
            assert world.selector.memory() == memory
        assert world.begin() == decision
        assert world.selector.memory() == twin.selector.memory()
        world.finish()
        twin.finish()
