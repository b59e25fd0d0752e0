"""Time and cost of plans, against hand calculation, and against the paper's graph played node by node."""

from __future__ import annotations

from graphlib import TopologicalSorter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.planner.job import Job, Latency, Load, Stage, TrialProfile, halving_job
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.simulation import NOTHING, Allocation, Held, Plan, Simulator
from easeml_db.errors import InvalidArgument
from easeml_experiments.planner.random_cases import cases
from tests.unit.planner.jobs import one_trial, plan, prices, simulator


def test_one_trial_takes_its_iterations_times_their_latency() -> None:
    found = simulator(one_trial(7, 3.0)).predict(plan(1))
    assert found.seconds.tolist() == [21.0] * 5
    assert found.mean_cost == pytest.approx(21.0)


def longest_path(sim: Simulator, allocations: Plan, sample: int) -> float:
    """Algorithm 1: a node for the queue, each instance, each trial and each barrier, all with the planner's luck."""
    latency, before, barrier, n_held = {"start": 0.0}, dict[str, set[str]]({"start": set()}), "start", 0
    for stage, (type_number, n_slots) in enumerate(allocations):
        instance = sim.prices.types[type_number]
        frontier, n_new = {barrier}, instance.n_instances(n_slots) - n_held
        if n_new > 0:
            queue, _ = sim.start_seconds(stage, type_number, n_new)
            latency[f"scale {stage}"], before[f"scale {stage}"] = float(queue[sample]), frontier
            frontier = set()
            for k in range(1, n_new + 1):  # the slowest of the first k, so that the last is the slowest of all
                name = f"instance {stage}.{k}"
                latency[name], before[name] = (
                    float(sim.start_seconds(stage, type_number, k)[1][sample]),
                    {f"scale {stage}"},
                )
                frontier.add(name)
        n_held = instance.n_instances(n_slots)
        n_trials = sim.job.stages[stage].n_trials
        seconds = sim.times._at_width(stage, instance, max(1, n_slots // n_trials)).seconds[sample]
        for j in range(n_trials):
            name, earlier = f"train {stage}.{j}", f"train {stage}.{j - n_slots}"
            latency[name], before[name] = float(seconds[j]), {earlier} if j >= n_slots else frontier
        barrier = f"sync {stage}"
        latency[barrier], before[barrier] = 0.0, {f"train {stage}.{j}" for j in range(n_trials)}
    finish: dict[str, float] = {}
    for node in TopologicalSorter(before).static_order():
        finish[node] = latency[node] + max((finish[other] for other in before[node]), default=0.0)
    return finish[barrier]


@pytest.mark.parametrize("allocations", [plan(9, 3, 1), plan(4, 8, 16), plan(2, 3, 1), plan(18, 2, 2)])
def test_durations_are_the_longest_path_of_the_papers_graph(allocations: Plan) -> None:
    profile = TrialProfile({1: 5.0, 2: 3.0, 8: 1.0}, spread=0.5, trial_spread=0.2, restore_seconds=2.0)
    job = halving_job((9, 3, 1), (1, 3, 9), profile, "cuda", is_hopping=False)
    sim = simulator(job, prices(2, queue=Latency(20.0, 5.0), initialisation=Latency(10.0, 8.0)))
    found = sim.predict(allocations)
    assert found.seconds == pytest.approx([longest_path(sim, allocations, sample) for sample in range(5)])
    assert np.sum(found.stage_seconds, axis=0) == pytest.approx(found.seconds)
    assert np.sum(found.stage_cost, axis=0) == pytest.approx(found.cost)


def two_stages(first: float, second: float) -> Job:
    return halving_job((2, 1), (first, second), TrialProfile({1: 1.0}), "cuda")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 2 * 30 + 100),
        ({"minimum_seconds": 60.0}, 60 + 130),
        ({"billed_by": "minute"}, 60 + 180),
        ({"queue": Latency(10.0)}, 2 * 30 + 100),  # the queue is not billed
        ({"initialisation": Latency(10.0)}, 2 * 40 + 100),  # the initialisation is
        ({"billed_per": "function"}, 2 * 30 + 100),
        ({"price_per_gb": 0.5}, 2 * 30 + 100 + 2 * 0.5 * 8),  # once for each instance
    ],
)
def test_what_is_billed(options: dict[str, object], expected: float) -> None:
    job = two_stages(30, 100)
    job = Job(job.stages, job.profiles, data_gb=8.0)
    assert simulator(job, prices(**options)).predict(plan(2, 1)).mean_cost == pytest.approx(expected)


def test_an_instance_that_waits_for_another_is_billed_meanwhile() -> None:
    found = simulator(two_stages(30, 30), prices(initialisation=Latency(10.0))).predict(plan(1, 2))
    # One trains two trials (10 + 60), then waits for the second (10), and both are held for the last trial (30).
    assert found.mean_seconds == 110
    assert found.mean_cost == 110 + 40


def test_each_slot_that_starts_pays_for_its_start_and_no_unit_does() -> None:
    """Two trials of trees (5 s to start), then one network (8 s) on slots that are there, or on one more."""
    stages = (Stage((Load("trees", 2, 30),)), Stage((Load("net", 2, 100),)))
    profiles = {("trees", "cuda"): TrialProfile({1: 1.0}, session_seconds=5.0),
                ("net", "cuda"): TrialProfile({1: 1.0}, session_seconds=8.0)}  # fmt: skip
    sim = simulator(Job(stages, profiles))
    assert sim.predict(plan(2, 2)).mean_seconds == 5 + 30 + 100
    assert sim.predict(plan(1, 2)).mean_seconds == 5 + 60 + 8 + 100
    assert sim.predict(plan(2, 1)).mean_seconds == 5 + 30 + 200
    assert sim.predict(plan(2, 2), Held(0, 2)).mean_seconds == 130
    assert sim.predict(plan(2, 2)).mean_cost == 2 * 135  # a slot that starts is there already


def test_the_oldest_instances_are_released_first_since_they_have_outlived_the_minimum() -> None:
    job = halving_job((1, 2, 1), (100, 10, 100), TrialProfile({1: 1.0}), "cuda")
    assert simulator(job, prices(minimum_seconds=60.0)).predict(plan(1, 2, 1)).mean_cost == 110 + 110


@pytest.mark.parametrize(
    ("options", "age", "expected"),
    [
        ({"minimum_seconds": 60.0}, 10.0, 0),  # paid until 60 s
        ({"minimum_seconds": 60.0}, 50.0, 20),
        ({"minimum_seconds": 60.0}, 100.0, 30),
        ({"billed_by": "minute"}, 40.0, 60),
        ({"billed_by": "minute"}, 70.0, 0),
    ],
)
def test_what_is_paid_of_instances_that_are_there_is_not_paid_again(
    options: dict[str, object], age: float, expected: float
) -> None:
    sim = simulator(one_trial(1, 30.0), prices(**options))
    assert sim.predict(plan(1), Held(0, 1, (age,))).mean_cost == pytest.approx(expected)
    assert sim.predict(plan(1), Held(0, 1)).mean_cost == 60  # not billed yet


@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=4),
    st.integers(0, 3),
    st.sampled_from([0.0, 45.0, 60.0, 600.0]),
    st.sampled_from(["second", "minute"]),
    st.integers(1, 2),
    st.floats(1.0, 80.0),
)
def test_planning_the_rest_again_counts_no_charge_twice(
    sizes: list[int], n_done: int, minimum: float, billed_by: str, slots_each: int, seconds: float
) -> None:
    """What is billed until a barrier, and the rest from there, are what the whole plan costs."""
    job = halving_job((4,) * len(sizes), tuple(range(1, len(sizes) + 1)), TrialProfile({1: seconds}), "cuda")
    listed = prices(slots_each, minimum_seconds=minimum, billed_by=billed_by, initialisation=Latency(7.0))
    whole, n_done = simulator(job, listed), n_done % (len(sizes) - 1) + 1
    at_barrier = whole._after(plan(*sizes[:n_done]), NOTHING)
    ages = tuple(float((at_barrier.now - one.ready)[0]) for one in at_barrier.groups for _ in range(one.n_instances))
    rest = simulator(Job(job.stages[n_done:], job.profiles), listed)
    left = rest.predict(plan(*sizes[n_done:]), Held(0, len(ages) * slots_each, ages)).mean_cost
    spent = sum(float(cost.mean()) for cost in at_barrier.costs)
    assert spent + left == pytest.approx(whole.predict(plan(*sizes)).mean_cost)


def test_by_the_function_trials_that_ended_cost_nothing_more() -> None:
    job = halving_job((8,), (1,), TrialProfile({1: 10.0}, trial_spread=1.0), "cuda")
    per_instance, per_function = (
        simulator(job, prices(billed_per=scope)).predict(plan(8)) for scope in ("instance", "function")
    )
    assert per_function.mean_seconds == per_instance.mean_seconds
    assert per_function.mean_cost < 0.7 * per_instance.mean_cost


def test_per_function_never_costs_more_than_per_instance() -> None:
    for case in cases(1, 40):
        job = case.simulator.job
        sizes = [stage.n_trials for stage in job.stages]
        costs = []
        for scope in ("function", "instance"):
            sim = Simulator(job, PriceList("x", (InstanceType("x", "cuda", 2, 7.0, billed_per=scope),)), n_samples=4)
            costs.append(sim.predict(plan(*(max(1, n // 3) for n in sizes))).cost)
        assert (costs[0] <= costs[1] * (1 + 1e-9)).all()


def test_another_instance_type_starts_anew() -> None:
    types = tuple(InstanceType(name, "cuda", 1, 3600.0, initialisation=Latency(5.0)) for name in ("a", "b"))
    sim = Simulator(two_stages(10, 10), PriceList("x", types))
    assert sim.predict((Allocation(0, 2), Allocation(1, 1))).mean_seconds == 30
    assert sim.predict((Allocation(0, 2), Allocation(0, 1))).mean_seconds == 25


def test_a_faster_type_takes_less_time() -> None:
    sim = simulator(one_trial(7, 3.0), prices(speed=3.0))
    assert sim.predict(plan(1)).mean_seconds == pytest.approx(7)


def test_a_forecast_starts_from_the_slots_that_are_there() -> None:
    sim = simulator(two_stages(30, 100), prices(initialisation=Latency(10.0)))
    assert sim.predict(plan(2, 1), Held(0, 2)).mean_seconds == 130
    assert sim.predict(plan(2, 1), Held(0, 1)).mean_seconds == 140
    assert sim.predict(plan(2, 1), Held(0, 9)).mean_cost == 160


def test_the_same_seed_gives_the_same_prediction_and_another_seed_another() -> None:
    job = halving_job((5,), (2,), TrialProfile({1: 1.0}, spread=0.5), "cuda")
    first, again, other = (Simulator(job, prices(), seed=seed).predict(plan(2)) for seed in (3, 3, 4))
    assert first.seconds.tolist() == again.seconds.tolist() != other.seconds.tolist()


def test_what_was_never_measured_is_refused_by_name() -> None:
    job = one_trial()
    with pytest.raises(InvalidArgument, match="how long any takes on cpu"):
        Simulator(job, PriceList("x", (InstanceType("c", "cpu", 1, 1.0),)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"price_per_hour": -1.0}, "price_per_hour: expected 0 to"),
        ({"price_per_hour": float("nan")}, "price_per_hour"),
        ({"n_slots": 0}, "n_slots: expected 1 to"),
        ({"billed_by": "week"}, "billed_by: expected second or minute, got 'week'"),
        ({"billed_per": "core"}, "billed_per: expected instance or function"),
        ({"minimum_seconds": -1.0}, "minimum_seconds"),
        ({"speed": 0.0}, "speed: expected a number above 0"),
        ({"max_instances": 0}, "max_instances"),
        ({"billed_per": "function", "minimum_seconds": 60.0}, "without a minimum"),
    ],
)
def test_prices_that_nobody_can_mean_are_refused(options: dict[str, object], said: str) -> None:
    arguments = {"n_slots": 1, "price_per_hour": 1.0} | options
    with pytest.raises(InvalidArgument, match=said):
        InstanceType("x", "cuda", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_latencies_are_numbers_of_at_least_0(value: float) -> None:
    with pytest.raises(InvalidArgument, match="latency"):
        Latency(value)
