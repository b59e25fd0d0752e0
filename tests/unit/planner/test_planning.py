"""Plans for goals: the paper's tables, what is never worse, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from easeml_db.decisions.planner.baselines import static_plans
from easeml_db.decisions.planner.greedy import optimise, warm_starts
from easeml_db.decisions.planner.job import Job, Latency, Load, Stage, TrialProfile, halving_job
from easeml_db.decisions.planner.planning import (
    NAIVE_ELASTIC,
    PLANNED,
    STATIC,
    Alternative,
    Goal,
    make_plans,
    plan_frontier,
)
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.simulation import Prediction, Simulator
from easeml_db.errors import InvalidArgument
from easeml_experiments.planner.random_cases import against_all, against_static, cases
from tests.unit.planner.jobs import one_trial, plan, prices, simulator, table_2


def made(sim: Simulator, goal: Goal) -> dict[str, Alternative]:
    return {each.name: each for each in make_plans(sim, goal)}


def test_table_2_at_20_minutes() -> None:
    """By hand, on the sheet's scaling: the best static cluster has 5 instances and costs about 19; a plan about 12."""
    sim = table_2()
    found = made(sim, Goal(20 * 60))
    cost = {name: each.prediction.mean_cost for name, each in found.items()}
    assert [n_slots for _, n_slots in found[STATIC].plan] == [20] * 4
    assert cost[STATIC] == pytest.approx(19.0, abs=0.3)
    assert cost[STATIC] / cost[PLANNED] >= 1.5
    printed = sim.predict(plan(32, 20, 12, 8))
    assert printed.mean_seconds < 20 * 60
    assert printed.mean_cost / cost[PLANNED] >= 1.0
    assert cost[PLANNED] <= cost[NAIVE_ELASTIC]


def test_no_plan_is_dearer_than_a_static_one_or_late() -> None:
    rows = [against_static(case) for case in cases(0, 8)]
    assert not [row for row in rows if row["is_dearer"] or row["is_late"]]


epochs, seconds = st.integers(1, 9), st.floats(0.1, 100.0)
latencies = st.builds(Latency, st.sampled_from([0.0, 1.0, 40.0]), st.sampled_from([0.0, 5.0]))


@st.composite
def random_jobs(draw: st.DrawFn) -> Job:
    """Up to four stages of two architectures, one of which has gangs; brackets may overlap, trials be unknown."""
    one, wide = draw(seconds), draw(st.floats(0.4, 1.2))
    common = {"spread": draw(st.sampled_from([0.0, 0.4])), "turn_seconds": draw(st.sampled_from([0.0, 0.1]))}
    profiles = {
        ("net", "cuda"): TrialProfile({1: one, 2: one * wide}, uncertainty=0.1, units_per_epoch=4, **common),
        ("tree", "cuda"): TrialProfile({1: draw(seconds)}, growth=0.1, session_seconds=3.0, **common),
    }
    stages = []
    for _ in range(draw(st.integers(1, 4))):
        some = [
            tuple(Load(name, draw(st.integers(1, 20)), float(draw(epochs)), is_tested=draw(st.booleans()))
                  for name in draw(st.sampled_from([("net",), ("tree",), ("net", "tree")])))
            for _ in range(draw(st.integers(1, 2)))
        ]  # fmt: skip
        alternatives = tuple(some) if len(some) > 1 else ()
        is_continued = bool(stages) and draw(st.booleans())
        stages.append(Stage(some[0], "", is_continued, alternatives, is_overlapped=draw(st.booleans())))
    return Job(tuple(stages), profiles, draw(st.booleans()), draw(st.sampled_from([0.0, 9.0])), draw(seconds))


@st.composite
def random_types(draw: st.DrawFn) -> InstanceType:
    """Billed by instance, with a minimum, or by function; some start at once, some late."""
    per_function = draw(st.booleans())
    billing = {"billed_per": "function"} if per_function else {
        "billed_by": draw(st.sampled_from(["second", "minute"])), "minimum_seconds": draw(st.sampled_from([0.0, 60.0]))
    }  # fmt: skip
    return InstanceType(
        f"type {draw(st.integers(0, 10**9))}", "cuda", draw(st.sampled_from([1, 2, 4])), draw(st.floats(0.0, 40.0)),
        price_per_gb=draw(st.sampled_from([0.0, 0.1])), queue=draw(latencies), initialisation=draw(latencies),
        max_instances=draw(st.sampled_from([1, 3, 12])), speed=draw(st.sampled_from([0.5, 1.0, 1.5])), **billing,
    )  # fmt: skip


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    random_jobs(),
    st.lists(random_types(), min_size=1, max_size=2, unique_by=lambda one: one.name),
    st.floats(0.0, 1.0),
    st.sampled_from([None, 0.8, 0.95]),
)
def test_no_plan_of_any_job_is_dearer_than_the_best_static_cluster_or_late(
    job: Job, types: list[InstanceType], slack: float, confidence: float | None
) -> None:
    """The deadline lies between the fastest and the slowest static cluster; 10,000 other jobs are in the experiment."""
    sim = Simulator(job, PriceList("any", tuple(types)), n_samples=8)
    goal = Goal(confidence=confidence)
    static = [sim.predict(each) for each in static_plans(sim)]
    times = sorted(goal.seconds(each) for each in static)
    deadline = times[0] * (times[-1] / times[0]) ** slack * (1 + 1e-9)
    planned = made(sim, Goal(deadline, confidence=confidence))[PLANNED].prediction
    assert goal.seconds(planned) <= deadline
    least = min(each.mean_cost for each in static if goal.seconds(each) <= deadline)
    assert planned.mean_cost <= least * (1 + 1e-9)


def test_plans_are_hardly_dearer_than_the_best_of_all() -> None:
    small = (case for case in cases(0, 12, is_small=True) if case.simulator.n_stages <= 3)
    ratios = [against_all(case)["ratio"] for case in small]
    assert sum(ratios) / len(ratios) <= 1.02
    assert max(ratios) <= 1.15


def test_algorithm_2_is_no_dearer_than_where_it_starts_and_keeps_the_deadline() -> None:
    sim, goal = table_2(), Goal(20 * 60)
    static = min(
        (each for each in static_plans(sim) if goal.allows(sim.predict(each))),
        key=lambda each: sim.predict(each).mean_cost,
    )
    starts = list(warm_starts(sim, static))
    assert [n_slots for start in starts for _, n_slots in start[:1]] == [20, 40, 60]
    found = made(sim, goal)[PLANNED].prediction.mean_cost
    for start in starts:
        improved = sim.predict(optimise(sim, start, goal.allows))
        assert improved.mean_cost <= sim.predict(start).mean_cost
        assert goal.allows(improved)
        assert found <= improved.mean_cost


def test_the_plan_keeps_its_deadline_with_the_confidence_asked_for() -> None:
    profile = TrialProfile({1: 60.0, 2: 32.0, 4: 20.0}, spread=0.3, trial_spread=0.3)
    sim = simulator(halving_job((9, 3, 1), (1, 3, 9), profile, "cuda"), n_samples=100)
    mean, sure = (made(sim, Goal(700.0, confidence=q))[PLANNED].prediction for q in (None, 0.95))
    assert (mean.seconds <= 700).mean() < 0.95 <= (sure.seconds <= 700).mean()
    assert sure.mean_cost >= mean.mean_cost


def test_the_chance_of_a_plan_is_the_share_of_samples_within_both_limits() -> None:
    seconds, cost = np.array([1.0, 2.0, 3.0, 4.0]), np.array([9.0, 8.0, 7.0, 6.0])
    prediction = Prediction(seconds, cost, (seconds,), (cost,))
    assert Goal().chance(prediction) is None
    assert Goal(3.0).chance(prediction) == 0.75
    assert Goal(3.0, 8.0).chance(prediction) == 0.5
    assert Goal(max_cost=8.0).chance(prediction) == 0.75


def test_for_a_sum_of_money_the_fastest_plan_is_made() -> None:
    sim = table_2()
    found = made(sim, Goal(max_cost=12.0))[PLANNED].prediction
    assert found.mean_cost <= 12.0
    cheapest_in_that_time = made(sim, Goal(found.mean_seconds))[PLANNED].prediction
    assert cheapest_in_that_time.mean_cost >= 11.5
    assert found.mean_seconds < made(sim, Goal(20 * 60))[PLANNED].prediction.mean_seconds


def test_without_limits_the_cheapest_plan_is_made() -> None:
    sim = table_2()
    assert made(sim, Goal())[PLANNED].prediction.mean_cost <= made(sim, Goal(40 * 60))[PLANNED].prediction.mean_cost


def test_a_deadline_that_no_plan_keeps_is_refused_with_the_fastest_and_its_cost() -> None:
    with pytest.raises(
        InvalidArgument, match=r"deadline: expected at least \d+ s, the fastest plan, got 60 s"
    ) as raised:
        make_plans(table_2(), Goal(60.0))
    assert "The fastest plan costs" in str(raised.value.hint)


def test_a_sum_that_no_plan_keeps_is_refused_with_the_cheapest_and_its_time() -> None:
    with pytest.raises(InvalidArgument, match=r"max_cost: expected at least \d+\.\d+, the cheapest plan, got 1\.00"):
        make_plans(table_2(), Goal(max_cost=1.0))


def test_limits_that_are_impossible_together_are_refused_with_what_the_deadline_costs() -> None:
    assert make_plans(table_2(), Goal(max_cost=10.3))
    with pytest.raises(InvalidArgument, match=r"the cheapest plan within 1200 s, got 10\.30") as raised:
        make_plans(table_2(), Goal(20 * 60, max_cost=10.3))
    assert "That plan takes" in str(raised.value.hint)


@pytest.mark.parametrize("value", [0.0, -5.0, float("nan"), float("inf")])
def test_limits_are_numbers_above_0(value: float) -> None:
    with pytest.raises(InvalidArgument, match="expected a number above 0"):
        Goal(deadline_seconds=value)
    with pytest.raises(InvalidArgument, match="expected a number above 0"):
        Goal(max_cost=value)
    with pytest.raises(InvalidArgument, match="confidence"):
        Goal(1.0, confidence=1 + abs(value))


def test_no_plan_has_more_slots_than_there_are() -> None:
    job = halving_job((32, 10, 3, 1), (1, 3, 9, 37), TrialProfile({1: 85.0, 8: 15.0}), "cuda")
    found = made(simulator(job, prices(max_instances=4)), Goal())
    assert max(n_slots for each in found.values() for _, n_slots in each.plan) <= 4


def test_a_plan_may_change_the_instance_type_between_stages() -> None:
    """Many short trials on cheap slots, the last long one on a fast slot."""
    slow = InstanceType("slow", "cpu", 1, 1.0)
    fast = InstanceType("fast", "cuda", 1, 20.0)
    job = halving_job((16, 1), (1, 40), TrialProfile({1: 60.0}), "cpu")
    job = type(job)(job.stages, {**job.profiles, ("any", "cuda"): TrialProfile({1: 6.0})})
    found = made(Simulator(job, PriceList("both", (slow, fast))), Goal(900.0))
    assert [type_number for type_number, _ in found[PLANNED].plan] == [0, 1]
    assert found[PLANNED].prediction.mean_cost < found[STATIC].prediction.mean_cost


def test_the_frontier_goes_from_the_fastest_to_the_cheapest_plan() -> None:
    sim = table_2()
    points = plan_frontier(sim, 20)
    times, costs = zip(*((each.prediction.mean_seconds, each.prediction.mean_cost) for each in points), strict=True)
    assert 5 <= len(points) <= 20
    assert list(times) == sorted(times)
    assert list(costs) == sorted(costs, reverse=True)
    assert costs[-1] == pytest.approx(made(sim, Goal())[PLANNED].prediction.mean_cost, rel=0.01)
    assert made(sim, Goal(times[0] * 1.0001))
    with pytest.raises(InvalidArgument):
        make_plans(sim, Goal(times[0] * 0.98))


def test_one_stage_of_one_trial_is_planned() -> None:
    found = make_plans(simulator(one_trial()), Goal(100.0))
    assert [each.prediction.mean_cost for each in found] == pytest.approx([21.0] * 3)


def test_a_minimum_charge_makes_short_lived_instances_dear() -> None:
    """Eight trials of 5 s: with a minimum of an hour one instance is cheaper than eight."""
    job = halving_job((8,), (1,), TrialProfile({1: 5.0}), "cuda")
    free, charged = (
        made(simulator(job, prices(minimum_seconds=least, initialisation=Latency(1.0))), Goal())[PLANNED].plan
        for least in (0.0, 3600.0)
    )
    assert charged[0].n_slots == 1
    assert free[0].n_slots <= 8
