"""GREEDY on two tenants and three arms, worked out by hand: bounds, minima, sig, candidates and gaps at every step."""

from __future__ import annotations

import numpy as np
import pytest

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.arm_rules import by_bound
from easeml_db.decisions.tenancy.greedy import Greedy
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.selector import Selector

COVARIANCE = 0.04 * np.array([[1, 0.5, 0.2], [0.5, 1, 0.5], [0.2, 0.5, 1]])
QUALITIES = {1: [0.7, 0.8, 0.6], 2: [0.3, 0.5, 0.9]}
# candidates, gap, tenant, arm (from 1), bound, least bound, sig
UNIT_COSTS = [
    (None, None, 1, 1, 0.8688, 0.8688, 0.1688),
    (None, None, 2, 1, 0.8688, 0.8688, 0.5688),
    ({2}, 0.5889, 2, 3, 0.8889, 0.8688, -0.0312),
    ({1}, 0.2789, 1, 2, 0.9789, 0.8688, 0.0688),
    ({1}, 0.2554, 1, 3, 1.0554, 0.8688, 0.2688),
    ({2}, 0.0449, 2, 2, 0.9449, 0.8688, 0.3688),
]
UNEQUAL_COSTS = [
    (None, None, 1, 1, 1.0216, 1.0216, 0.3216),
    (None, None, 2, 1, 1.0216, 1.0216, 0.7216),
    ({2}, 0.5102, 2, 3, 0.8102, 0.8102, -0.0898),
    ({1}, 0.2789, 1, 2, 0.9789, 0.9789, 0.1789),
    ({1}, 0.1804, 1, 3, 0.9804, 0.9789, 0.3789),
    ({2}, 0.0449, 2, 2, 0.9449, 0.8102, 0.3102),
]


@pytest.mark.parametrize(
    ("costs", "steps"), [([1.0, 1.0, 1.0], UNIT_COSTS), ([0.5, 1.0, 1.5], UNEQUAL_COSTS)], ids=["unit", "unequal"]
)
def test_greedy_takes_the_steps_of_the_worked_example(costs: list[float], steps: list[tuple]) -> None:
    selector: Selector[int] = Selector(Greedy(), by_bound)
    for tenant in QUALITIES:
        selector.join(tenant, RunBandit(Prior(np.full(3, 0.5), COVARIANCE, 1e-4), np.array(costs)))
    for candidates, gap, tenant, arm, bound, least_bound, sig in steps:
        decision = selector.choose()
        assert decision is not None
        assert (decision.run, decision.arm + 1) == (tenant, arm)
        assert decision.bound == pytest.approx(bound, abs=6e-5)
        if candidates is not None:
            assert (decision.phase, decision.candidates) == ("greedy", candidates)
            assert decision.gap == pytest.approx(gap, abs=6e-5)
        selector.begin(decision)
        selector.finish(tenant, decision.arm, QUALITIES[tenant][decision.arm])
        bandit = selector.bandits[tenant]
        assert bandit.least_bound == pytest.approx(least_bound, abs=6e-5)
        assert bandit.sig == pytest.approx(sig, abs=6e-5)
    assert selector.choose() is None


def test_the_posterior_after_one_play_is_that_of_the_worked_example() -> None:
    bandit = RunBandit(Prior(np.full(3, 0.5), COVARIANCE, 1e-4), np.ones(3))
    bandit.begin(0)
    bandit.finish(0, 0.7)
    assert bandit.posterior.mean == pytest.approx([0.6995, 0.5998, 0.5399], abs=6e-5)
    assert np.sqrt(bandit.posterior.variance) == pytest.approx([0.0100, 0.1733, 0.1960], abs=6e-5)
