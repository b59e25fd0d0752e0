"""Ten thousand tenants of two hundred arms: what is held grows with what was observed."""

from __future__ import annotations

import numpy as np
import pytest

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.arm_rules import ARM_RULES
from easeml_db.decisions.tenancy.policies import make_policy
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.selector import Selector

N_TENANTS, N_ARMS = 10_000, 200
VECTORS = 8  # of K numbers, that each tenant may hold before anything is observed


def numbers_held(*holders: object) -> int:
    """Entries of all arrays of these objects, those that they share counted once."""
    arrays = {id(value): value for one in holders for value in vars(one).values() if isinstance(value, np.ndarray)}
    return sum(array.size for array in arrays.values())


@pytest.fixture(scope="module")
def selector() -> Selector[int]:
    points = np.random.default_rng(0).uniform(size=N_ARMS)
    prior = Prior(np.full(N_ARMS, 0.5), 0.04 * np.exp(-((points[:, None] - points) ** 2) / 0.02), 1e-4)
    costs = np.ones(N_ARMS)
    selector: Selector[int] = Selector(make_policy("hybrid"), ARM_RULES["ucb"])
    for tenant in range(N_TENANTS):
        selector.join(tenant, RunBandit(prior, costs))
    return selector


def test_a_decision_among_ten_thousand_tenants_changes_what_one_of_them_holds(selector: Selector[int]) -> None:
    def held() -> int:
        return numbers_held(*selector.bandits.values(), *(one.posterior for one in selector.bandits.values()))

    before = held()
    assert before <= N_TENANTS * N_ARMS * VECTORS
    assert len({id(one.posterior.prior.covariance) for one in selector.bandits.values()}) == 1
    assert numbers_held(selector.standings) <= 10 * N_TENANTS
    for tenant in range(5):
        decision = selector.choose()
        assert decision is not None
        assert decision.run == tenant
        selector.begin(decision)
        selector.finish(tenant, decision.arm, 0.5)
    assert before < held() <= before + 5 * 8 * N_ARMS  # rows are added eight at once


@pytest.mark.parametrize("n_observed", [1, 20, 200])
def test_a_posterior_keeps_rows_of_observed_arms_only(selector: Selector[int], n_observed: int) -> None:
    prior = selector.bandits[0].posterior.prior
    bandit = RunBandit(prior, np.ones(N_ARMS))
    empty = numbers_held(bandit, bandit.posterior)
    for arm in range(n_observed):
        bandit.begin(arm)
        bandit.finish(arm, 0.5)
    assert numbers_held(bandit, bandit.posterior) - empty <= (1.25 * n_observed + 8) * N_ARMS


def test_those_that_left_hold_nothing() -> None:
    selector: Selector[int] = Selector(make_policy("round_robin"), ARM_RULES["ucb"])
    prior = Prior(np.full(2, 0.5), np.eye(2), 1e-4)
    for tenant in range(200):
        selector.join(tenant, RunBandit(prior, np.ones(2)))
        for _ in range(2):
            decision = selector.choose()
            assert decision is not None
            selector.begin(decision)
        selector.leave(tenant)
    assert selector.bandits == {}
    assert numbers_held(selector.standings) == 0
    assert selector.memory()["policy"]["clocks"] == []
