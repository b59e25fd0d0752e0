"""Planning the rest of a run whose limits cannot all be kept any more."""

from __future__ import annotations

from easeml_db.decisions.planner.job import Job, Load, Stage, TrialProfile
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.replanning import _as_good_as_can_be
from easeml_db.decisions.planner.simulation import NOTHING, Simulator

SMALL, FAST = InstanceType("small", "cpu", 1, 36.0), InstanceType("fast", "cpu", 1, 3600.0, speed=10.0)


def rest() -> Simulator:
    profile = {("net", "cpu"): TrialProfile({1: 10.0}, 4, 0.0)}
    return Simulator(Job((Stage((Load("net", 4, 10),)),), profile), PriceList("cloud", (SMALL, FAST)))


def test_the_rest_of_the_money_bounds_a_plan_whose_deadline_has_passed() -> None:
    free = _as_good_as_can_be(rest(), None, NOTHING).prediction
    bounded = _as_good_as_can_be(rest(), 20.0, NOTHING).prediction
    assert free.mean_cost > 20.0
    assert bounded.mean_cost <= 20.0
    assert bounded.mean_seconds > free.mean_seconds


def test_without_any_money_left_the_rest_is_as_cheap_as_can_be() -> None:
    cheapest = _as_good_as_can_be(rest(), 1e-9, NOTHING).prediction
    assert cheapest.mean_cost == _as_good_as_can_be(rest(), -3.0, NOTHING).prediction.mean_cost
    assert cheapest.mean_cost <= _as_good_as_can_be(rest(), 20.0, NOTHING).prediction.mean_cost
