"""A tenant's own numbers: t, E, sig and best while plays are under way, replays, costs, and the rules for its arms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.bandits.acquisition import ConfidenceBounds, expected_improvement, probability_of_improvement
from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.arm_rules import ARM_RULES, EXPERT_RULES, in_order
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.errors import InvalidArgument

PRIOR = Prior(np.array([0.4, 0.5, 0.6, 0.5]), 0.04 * (0.5 * np.eye(4) + 0.5), 1e-4)
COSTS = np.array([0.5, 1.0, 2.0, 0.5])


def bandit(**options) -> RunBandit:
    return RunBandit(PRIOR, COSTS, **options)


def test_a_new_bandit_knows_nothing_yet() -> None:
    new = bandit()
    assert (new.t, new.least_bound, new.best) == (1, math.inf, 0.0)
    assert math.isnan(new.sig)
    expected = PRIOR.mean + np.sqrt(math.log(4 / 0.1) / COSTS * 0.04)
    np.testing.assert_allclose(new.bounds, expected)
    assert new.gap == pytest.approx(expected.max())


@given(st.data())
def test_the_numbers_are_those_of_section_1_6_whatever_is_under_way(data: st.DataObject) -> None:
    one, least, sig, best, t, pending = bandit(allow_replays=data.draw(st.booleans())), math.inf, None, 0.0, 1, []
    for _ in range(10):
        offered = np.flatnonzero(one.offered).tolist()
        if pending and (not offered or data.draw(st.booleans())):
            arm, quality = pending.pop(data.draw(st.integers(0, len(pending) - 1))), data.draw(st.floats(0.0, 1.0))
            one.finish(arm, quality)
            sig, best = least - quality, max(best, quality)
        elif offered:
            arm = data.draw(st.sampled_from(offered))
            bound, mean = float(one.bounds[arm]), one.posterior.mean.copy()
            assert one.begin(arm) == bound
            least, t = min(least, bound), t + 1
            np.testing.assert_array_equal(one.posterior.mean, mean)
            pending.append(arm)
        assert (one.least_bound, one.best, one.t) == (least, best, t)
        assert math.isnan(one.sig) if sig is None else one.sig == sig
        variance = one.posterior.variance_with(pending)
        np.testing.assert_allclose(one.variance, variance, atol=1e-12)
        bounds = one.posterior.mean + np.sqrt(math.log(4 * t**2 / 0.1) / COSTS * variance)
        np.testing.assert_allclose(one.bounds[one.offered], bounds[one.offered], atol=1e-9)
        assert (one.bounds[~one.offered] == -math.inf).all()


def test_a_result_replaces_what_stood_for_it_while_it_was_under_way() -> None:
    waited, direct = bandit(), bandit()
    waited.begin(0)
    waited.begin(1)
    waited.finish(1, 0.9)
    waited.finish(0, 0.3)
    for arm, quality in ((0, 0.3), (1, 0.9)):
        direct.begin(arm)
        direct.finish(arm, quality)
    np.testing.assert_allclose(waited.bounds, direct.bounds)


def test_an_arm_is_played_once_and_only_where_it_is_offered() -> None:
    one = bandit(offered=np.array([True, True, False, False]))
    one.begin(0)
    for arm in (0, 2):
        with pytest.raises(InvalidArgument, match=f"arm {arm} is not offered"):
            one.begin(arm)
    one.finish(0, 0.5)
    with pytest.raises(InvalidArgument, match="arm 0 is not offered"):
        one.begin(0)
    assert one.n_arms == 2
    assert one.can_open
    one.begin(1)
    assert not one.can_open


def test_replays_offer_an_arm_again_but_none_that_was_withdrawn() -> None:
    one = bandit(allow_replays=True, offered=np.array([True, False, True, True]))
    one.begun(1, 0.8)  # played before it was withdrawn
    one.finish(1, 0.5)
    one.begin(0)
    assert one.offered.tolist() == [True, False, True, True]


def test_the_quality_of_an_arm_that_was_not_begun_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="arm 2 is not under way"):
        bandit().finish(2, 0.5)


def test_other_costs_move_the_bounds_and_not_the_belief() -> None:
    one = bandit()
    one.set_costs(COSTS * 4)
    np.testing.assert_allclose(one.bounds - PRIOR.mean, (bandit().bounds - PRIOR.mean) / 2)
    np.testing.assert_array_equal(one.posterior.mean, PRIOR.mean)


@pytest.mark.parametrize("wrong", [np.ones(3), np.ones((4, 1)), np.array([1.0, 1.0, 0.0, 1.0])])
def test_costs_that_do_not_fit_are_refused(wrong: np.ndarray) -> None:
    with pytest.raises(InvalidArgument, match="costs: expected"):
        RunBandit(PRIOR, wrong)
    one = bandit()
    with pytest.raises(InvalidArgument, match="costs: expected"):
        one.set_costs(wrong)
    np.testing.assert_array_equal(one.costs, COSTS)


def test_bounds_of_a_logit_belief_are_qualities() -> None:
    logit = RunBandit(Prior(np.array([0.0, 3.0]), np.eye(2), 1e-3, link="logit"), np.ones(2))
    root = math.sqrt(math.log(2 / 0.1))
    assert logit.bounds == pytest.approx([1 / (1 + math.exp(-root)), 1 / (1 + math.exp(-3 - root))])


def test_cost_oblivious_bandits_bound_as_if_all_costs_were_one() -> None:
    oblivious = bandit(confidence=ConfidenceBounds(is_cost_aware=False))
    np.testing.assert_allclose(oblivious.bounds, RunBandit(PRIOR, np.ones(4)).bounds)


def test_arm_rules_score_what_is_offered_by_their_formulas() -> None:
    one = bandit()
    one.begin(1)
    one.finish(1, 0.45)
    mean, variance = one.posterior.mean, one.variance
    improvement = expected_improvement(mean, variance, 0.45)
    expected = {
        "ucb": mean + np.sqrt(one.beta / COSTS * variance),
        "ei": improvement,
        "ei_rate": improvement / COSTS,
        "pi": probability_of_improvement(mean, variance, 0.45),
    }
    assert {name for name, rule in ARM_RULES.items() if rule not in EXPERT_RULES} == set(expected)
    for name in expected:
        scores = ARM_RULES[name](one)
        np.testing.assert_allclose(scores[[0, 2, 3]], expected[name][[0, 2, 3]], err_msg=name)
        assert scores[1] == -math.inf


def test_a_fixed_order_is_kept_whatever_is_observed() -> None:
    one, rule, played = bandit(), in_order([2, 0, 3, 1]), []
    while one.can_open:
        played.append(int(np.argmax(rule(one))))
        one.begin(played[-1])
        one.finish(played[-1], 0.9 - 0.2 * len(played))
    assert played == [2, 0, 3, 1]


@pytest.mark.parametrize("name", ["ucb", "ei", "ei_rate"])
def test_an_arm_under_way_sends_the_next_play_to_one_that_is_not_like_it(name: str) -> None:
    alike = np.array([[1.0, 0.99, 0.0], [0.99, 1.0, 0.0], [0.0, 0.0, 1.0]])
    one = RunBandit(Prior(np.full(3, 0.5), 0.04 * alike, 1e-4), np.ones(3))
    assert int(np.argmax(ARM_RULES[name](one))) == 0
    one.begin(0)
    assert int(np.argmax(ARM_RULES[name](one))) == 2
