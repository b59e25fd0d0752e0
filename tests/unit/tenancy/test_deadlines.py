"""Deadlines: nothing is begun that would end too late, and who is pressed is served while there is time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.decisions.bandits.prior import independent_prior
from easeml_db.decisions.tenancy.arm_rules import ARM_RULES
from easeml_db.decisions.tenancy.policies import POLICIES, description, make_policy
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.selector import Selector


def pool(*tenants: tuple[list[float], float], policy: str = "round_robin") -> Selector[int]:
    """Tenants with costs and a deadline each; a unit of cost takes a second."""
    selector: Selector[int] = Selector(make_policy(policy), ARM_RULES[description(policy).arm_rule])
    for key, (costs, deadline) in enumerate(tenants):
        bandit = RunBandit(independent_prior(len(costs)), np.array(costs))
        selector.join(key, bandit, deadline_seconds=deadline)
    return selector


def serve(selector: Selector[int], now_seconds: float) -> tuple[int, str] | None:
    """Decide, and see the result: tenant and rule."""
    decision = selector.choose(now_seconds, seconds_per_cost=1.0)
    if decision is None:
        return None
    selector.begin(decision)
    selector.finish(decision.run, decision.arm, 0.5)
    return decision.run, decision.phase


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30)
@given(seed=st.integers(0, 1000), deadlines=st.lists(st.floats(0.5, 12.0), min_size=1, max_size=4))
def test_no_arm_is_begun_that_would_end_after_the_deadline(policy: str, seed: int, deadlines: list[float]) -> None:
    rng = np.random.default_rng(seed)
    selector = pool(*[(rng.uniform(0.3, 3.0, 4).tolist(), deadline) for deadline in deadlines], policy=policy)
    now = 0.0
    while (decision := selector.choose(now, seconds_per_cost=1.0)) is not None:
        selector.begin(decision)
        now += decision.cost
        assert now <= deadlines[decision.run]
        selector.finish(decision.run, decision.arm, float(rng.uniform()))
    for key, bandit in selector.bandits.items():  # nothing that would have ended in time is left
        assert not (now + bandit.costs[bandit.offered] <= deadlines[key]).any()


def test_an_arm_that_ends_in_time_is_played_instead_of_a_better_one_that_does_not() -> None:
    prior = independent_prior(3)
    selector: Selector[int] = Selector(make_policy("ei_rate"), ARM_RULES["ei"])
    bandit = RunBandit(type(prior)(np.array([0.9, 0.8, 0.3]), prior.covariance, 1e-4), np.array([9.0, 3.0, 1.0]))
    selector.join(0, bandit, deadline_seconds=5.0)
    scores = ARM_RULES["ei"](bandit)
    decision = selector.choose(0.0, seconds_per_cost=1.0)
    assert decision is not None
    assert (decision.arm, decision.score) == (1, scores[1])


def test_a_run_with_a_time_limit_is_not_kept_waiting_for_all_that_it_could_try() -> None:
    """Its arm would take an hour for all its configs; the run ends after two minutes, whatever it has tried by then."""
    bandits = [RunBandit(independent_prior(1), np.array([3600.0])) for _ in range(2)]
    selector: Selector[int] = Selector(make_policy("ei_rate"), ARM_RULES["ei"])
    selector.join(0, bandits[0], deadline_seconds=600.0)
    assert selector.choose(0.0, seconds_per_cost=1.0) is None
    selector.join(1, bandits[1], deadline_seconds=600.0, most_seconds=120.0)
    decision = selector.choose(0.0, seconds_per_cost=1.0)
    assert decision is not None
    assert (decision.run, decision.phase) == (1, "first_service")
    assert selector.choose(481.0, seconds_per_cost=1.0) is None, "it would end after the deadline"


def test_a_lifted_deadline_brings_the_better_arm_back() -> None:
    selector = pool(([1.0, 1.0], np.inf), ([1.0, 1.0], np.inf))
    prior = independent_prior(2)
    selector.join(2, RunBandit(type(prior)(np.array([0.9, 0.1]), prior.covariance, 1e-4), np.array([9.0, 1.0])))
    selector.set_terms(2, weight=1.0, deadline_seconds=5.0)
    assert serve(selector, 0.0) == (0, "first_service")  # all were looked at
    assert serve(selector, 0.0) == (1, "first_service")
    selector.set_terms(2, weight=1.0)
    decision = selector.choose(0.0, seconds_per_cost=1.0)
    assert decision is not None
    assert (decision.run, decision.arm) == (2, 0)


def test_the_last_call_comes_before_the_policy() -> None:
    selector = pool(([1.0] * 5, np.inf), ([1.0] * 5, 8.0))
    assert [serve(selector, 0.0) for _ in range(2)] == [(0, "first_service"), (1, "first_service")]
    assert serve(selector, 0.0) == (0, "round_robin")
    assert serve(selector, 5.9) == (1, "round_robin")  # more than twice the time of an arm is left
    assert serve(selector, 6.1) == (1, "last_call")
    assert serve(selector, 6.1) == (1, "last_call")
    assert serve(selector, 7.1) == (0, "round_robin")  # it would end at 8.1


def test_of_several_last_calls_the_earliest_deadline_comes_first_and_the_lowest_tenant_at_a_tie() -> None:
    selector = pool(*[([1.0] * 3, deadline) for deadline in (3.0, 2.5, 2.5)])
    for _ in range(3):
        serve(selector, 0.0)
    assert [serve(selector, 1.5) for _ in range(6)] == [(k, "last_call") for k in (1, 1, 2, 2, 0, 0)]


def test_the_first_service_comes_before_the_last_call() -> None:
    selector = pool(([1.0] * 3, 2.0), ([1.0] * 3, np.inf))
    assert serve(selector, 0.5) == (0, "first_service")
    assert serve(selector, 0.9) == (1, "first_service")
    assert serve(selector, 0.9) == (0, "last_call")


def test_a_tenant_beyond_its_deadline_plays_no_more_and_others_go_on() -> None:
    selector = pool(([1.0] * 2, 5.0), ([1.0] * 2, np.inf))
    assert [serve(selector, 6.0) for _ in range(3)] == [(1, "first_service"), (1, "round_robin"), None]


def test_a_deadline_stays_with_its_tenant_when_another_leaves() -> None:
    selector = pool(([1.0] * 2, np.inf), ([1.0] * 2, 1.5), ([1.0] * 2, np.inf))
    selector.leave(0)
    assert serve(selector, 1.0) == (2, "first_service")
    assert serve(selector, 0.2) == (1, "first_service")
