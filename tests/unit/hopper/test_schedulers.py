"""Every scheduler, one suite: the rules of the trade on any load, and makespans near the bound on known ones."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.decisions.hopper.schedulers.contract import Candidate, Placement, Workload
from easeml_db.decisions.hopper.schedulers.longest_remaining import LongestRemaining
from easeml_db.decisions.hopper.schedulers.makespan_simulation import simulate
from easeml_db.decisions.hopper.schedulers.registry import (
    SCHEDULERS,
    check_fit,
    choose_scheduler,
    list_schedulers,
    make_scheduler,
)
from easeml_db.errors import InvalidArgument

DENSE = ("longest_remaining", "random")
ORDERS = ("cyclic", "free")
# Megaflops of 35 networks (Cerebro, technical report, table 7) and teraflops of four GPUs (its section 6).
COSTS = (
    727, 724, 837, 360, 727, 2000, 3000, 2000, 2000, 2000, 16000, 16000, 20000, 2000, 2000, 4000, 4000, 8000, 11000,
    4000, 8000, 16000, 6000, 4000, 8000, 11000, 4000, 8000, 21000, 2000, 3000, 8000, 3000, 4000, 579,
)  # fmt: skip
SPEEDS = (12.1, 5.6, 11.3, 18.7)


def fits(name, placement, visit_order):
    try:
        check_fit(name, placement, visit_order)
    except InvalidArgument:
        return False
    return True


@st.composite
def workloads(draw, name):
    """What fits a scheduler: shared, one holder each, or replicated; slots of two speeds; one or two rounds."""
    p, n_slots = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    slots = [10 * j for j in range(1, n_slots + 1)]
    placement = Placement.shared(slots, p)
    if draw(st.booleans()):
        segments = dict(zip(slots, draw(st.lists(st.integers(1, 3), min_size=n_slots, max_size=n_slots)), strict=True))
        able = st.frozensets(st.sampled_from(sorted(set(segments.values()))), min_size=1)
        placement = Placement(p, segments, tuple(draw(st.lists(able, min_size=p, max_size=p))))
        if not any(fits(name, placement, order) for order in ORDERS):
            placement = Placement.shared(slots, p)
    second = st.floats(0.125, 8.0, width=16)
    orders = [order for order in ORDERS if fits(name, placement, order)]
    rows = draw(st.lists(st.tuples(*[second] * p), min_size=1, max_size=6))
    speeds = {slot: draw(st.sampled_from([1.0, 2.0])) for slot in slots}
    return Workload(tuple(rows), placement, draw(st.sampled_from(orders)), draw(st.integers(1, 2)), speeds)


@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_the_rules_of_the_trade_hold(name, data):
    workload = data.draw(workloads(name))
    schedule = simulate(workload, make_scheduler(name, workload, time_limit_seconds=0.2))
    p = workload.placement.n_partitions
    rounds, by_trial, by_slot = defaultdict(list), defaultdict(list), defaultdict(list)
    for unit in schedule.units:
        assert workload.placement.can_run(unit.slot_id, unit.partition_number)
        seconds = workload.seconds(unit.trial_number, unit.partition_number, unit.slot_id)
        assert unit.end_seconds == unit.start_seconds + seconds
        rounds[unit.trial_number, unit.round_number].append(unit.partition_number)
        by_trial[unit.trial_number].append(unit)
        by_slot[unit.slot_id].append(unit)
    n = len(workload.unit_seconds)
    assert set(rounds) == set(product(range(1, n + 1), range(workload.n_rounds)))
    for (number, _), met in rounds.items():
        assert sorted(met) == list(range(p))
        assert workload.visit_order == "free" or met == [(number + k) % p for k in range(p)]
    for units in (*by_trial.values(), *by_slot.values()):
        assert all(a.end_seconds <= b.start_seconds for a, b in pairwise(units))
    assert schedule.makespan_seconds >= schedule.bound_seconds * (1 - 1e-9)


@pytest.mark.parametrize("name", DENSE)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_no_slot_idles_while_a_trial_could_run_on_it(name, data):
    workload = data.draw(workloads(name))
    units = simulate(workload, make_scheduler(name, workload)).units
    for unit in units:
        before = max((u.end_seconds for u in units if u.trial_number == unit.trial_number and u is not unit
                      and u.end_seconds <= unit.start_seconds), default=0.0)  # fmt: skip
        for slot in workload.placement.slots:
            if workload.placement.can_run(slot, unit.partition_number):
                busy = [u for u in units if u.slot_id == slot]
                moments = [before, *(u.end_seconds for u in busy if before < u.end_seconds < unit.start_seconds)]
                for at in [moment for moment in moments if moment < unit.start_seconds]:
                    assert any(u.start_seconds <= at < u.end_seconds for u in busy)


@pytest.mark.parametrize("name", SCHEDULERS)
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_trials_that_are_dropped_hold_up_nobody(name, data):
    workload = data.draw(workloads(name))
    scheduler = make_scheduler(name, workload, time_limit_seconds=0.2)
    n, p = len(workload.unit_seconds), workload.placement.n_partitions
    dropped = data.draw(st.sets(st.integers(1, n)))
    for number in range(1, n + 1):
        open_ = (number % p,) if workload.visit_order == "cyclic" else tuple(range(p))
        scheduler.put(Candidate(number, number, 0, open_, 1.0))
    for number in dropped:
        scheduler.take(number)
    chosen = scheduler.choose(workload.placement.slots)
    assert not {assignment.trial_id for assignment in chosen} & dropped
    assert len({a.trial_id for a in chosen}) == len({a.slot_id for a in chosen}) == len(chosen)
    assert bool(chosen) == (len(dropped) < n)


# Near the bound


def cerebro_workload(n, p, *, is_uneven, seed):
    """A cell of Cerebro's figure 6: one holder for each partition."""
    rng = np.random.default_rng(seed)
    costs = rng.choice(COSTS, n) if is_uneven else np.full(n, 5939.0)
    speeds = rng.choice(SPEEDS, p) if is_uneven else np.full(p, 12.1)
    by_slot = {j + 1: float(speed) for j, speed in enumerate(speeds)}
    rows = tuple((float(cost),) * p for cost in costs)
    return Workload(rows, Placement.one_holder_each(range(1, p + 1)), speeds=by_slot)


def test_the_default_comes_within_two_percent_of_the_bound():
    ratios = []
    for p, is_uneven, seed in product((8, 16), (False, True), range(5)):
        choice = choose_scheduler(cerebro_workload(16, p, is_uneven=is_uneven, seed=seed))
        ratios.append(choice.makespan_seconds / choice.bound_seconds)
        assert choice.makespan_seconds == min(choice.alternatives.values())
    assert np.mean(ratios) <= 1.02


def test_48_uneven_trials_on_8_slots_end_near_the_bound():
    for seed in range(5):
        speeds = np.random.default_rng(seed).lognormal(0.0, 1.0, 48)
        workload = Workload(tuple((float(s),) * 8 for s in speeds), Placement.shared(range(8), 8), "cyclic")
        schedule = simulate(workload, make_scheduler("longest_remaining", workload))
        assert schedule.makespan_seconds <= 1.02 * schedule.bound_seconds


@pytest.mark.parametrize("visit_order", ORDERS)
@pytest.mark.parametrize("make", [Placement.one_holder_each, lambda slots: Placement.shared(slots, 16)])
def test_as_many_equal_trials_as_slots_rotate_without_waiting(make, visit_order):
    workload = Workload(((1.0,) * 16,) * 16, make(range(16)), visit_order, n_rounds=3)
    schedule = simulate(workload, make_scheduler("rotation", workload))
    assert schedule.makespan_seconds == schedule.bound_seconds == 48.0


def test_random_order_is_worse_than_longest_remaining_on_uneven_trials():
    rows = tuple((float(s),) * 8 for s in np.random.default_rng(1).lognormal(0.0, 1.0, 48))
    workload = Workload(rows, Placement.shared(range(8), 8), "cyclic")
    longest, *drawn = (
        simulate(workload, make_scheduler(name, workload, seed=seed)).makespan_seconds
        for name, seed in [("longest_remaining", 0), *(("random", seed) for seed in range(5))]
    )
    assert np.mean(drawn) > 1.03 * longest


# Choices one by one


def candidate(number, seconds=1.0, *partitions):
    return Candidate(number, number, 0, partitions or (0,), seconds)


def chosen_by(placement, candidates, slots, cached=None):
    scheduler = LongestRemaining(placement)
    for each in candidates:
        scheduler.put(each)
    return [(a.trial_id, a.partition_number, a.slot_id) for a in scheduler.choose(slots, cached)]


def test_most_remaining_goes_first_and_never_timed_before_all():
    shared = Placement.shared([1, 2], 1)
    assert chosen_by(shared, [candidate(1, 1.0), candidate(2, 3.0), candidate(3, float("inf"))], [1, 2]) == [
        (3, 0, 1), (2, 0, 2),
    ]  # fmt: skip


def test_a_lower_rank_goes_before_more_work():
    shared = Placement.shared([1, 2, 3], 1)
    early, later = candidate(2, 1.0), [replace(candidate(number, 9.0), rank=1) for number in (1, 3)]
    assert chosen_by(shared, [*later, early], [1]) == [(2, 0, 1)]
    assert {trial for trial, _, _ in chosen_by(shared, [*later, early], [1, 2, 3])} == {1, 2, 3}


def test_ties_go_round_and_a_cached_partition_decides_among_equals_only():
    shared = Placement.shared([0, 1, 2], 3)
    equal = [candidate(number, 2.0, number % 3) for number in (1, 2, 3)]
    assert chosen_by(shared, equal, [1]) == [(1, 1, 1)]
    assert chosen_by(shared, equal, [1], {1: {2}}) == [(2, 2, 1)]
    assert chosen_by(shared, [*equal, candidate(4, 2.5, 1)], [1], {1: {2}}) == [(4, 1, 1)]


def test_the_most_loaded_slot_chooses_first_and_the_most_loaded_partition_is_met_first():
    bound = Placement(3, {1: 1, 2: 2}, (frozenset({1}), frozenset({1, 2}), frozenset({2})))
    candidates = [candidate(1, 9.0, 0, 1, 2), candidate(2, 4.0, 2), candidate(3, 4.0, 2)]
    assert chosen_by(bound, candidates, [1, 2]) == [(1, 2, 2)]
    assert chosen_by(bound, candidates, [1]) == [(1, 0, 1)]


@pytest.mark.parametrize("name", DENSE)
def test_trials_that_are_idle_already_meet_slots_that_come_later(name):
    one, three = Placement.shared([1], 3), Placement.shared([1, 2, 3], 3)
    scheduler = make_scheduler(name, Workload(((1.0,) * 3,) * 3, one))
    for number in (1, 2, 3):
        scheduler.put(candidate(number, 1.0, 0))
    assert scheduler.serve(three)
    chosen = scheduler.choose([1, 2, 3])
    assert sorted(each.trial_id for each in chosen) == [1, 2, 3]
    assert [each.slot_id for each in chosen] == [1, 2, 3]


def test_slots_that_come_later_take_part_in_rotation_and_bring_their_partitions():
    scheduler = LongestRemaining(Placement.shared([1], 2))
    scheduler.put(candidate(1, 1.0, 0))
    scheduler.put(candidate(2, 1.0, 0))
    scheduler.serve(Placement.shared([1, 2], 2))
    assert [(each.trial_id, each.slot_id) for each in scheduler.choose([2])] == [(1, 2)]
    bound = LongestRemaining(Placement(2, {1: 1}, (frozenset({1}), frozenset({2}))))
    bound.put(candidate(1, 1.0, 1))
    assert bound.choose([1]) == []
    bound.serve(Placement(2, {1: 1, 2: 2}, (frozenset({1}), frozenset({2}))))
    assert [(each.trial_id, each.slot_id) for each in bound.choose([1, 2])] == [(1, 2)]


def test_a_plan_is_made_again_for_other_slots():
    slots = Placement.shared([1, 2], 2)
    assert not make_scheduler("rotation", Workload(((1.0, 1.0),) * 2, slots)).serve(slots)


@pytest.mark.parametrize("seconds", [float("nan"), -1.0])
def test_remaining_work_must_be_a_number(seconds):
    with pytest.raises(InvalidArgument, match="remaining_seconds"):
        LongestRemaining(Placement.shared([1], 1)).put(candidate(1, seconds))


# By name


def test_a_scheduler_that_does_not_exist_or_fit_is_refused_with_the_way_out():
    shared = Workload(((1.0, 1.0),), Placement.shared([1], 2), "cyclic")
    with pytest.raises(InvalidArgument, match="no scheduler 'fifo'") as caught:
        make_scheduler("fifo", shared)
    assert "longest_remaining" in caught.value.hint
    with pytest.raises(InvalidArgument, match="needs the visit order free"):
        make_scheduler("milp", shared)
    replicated = Placement(1, {1: 1, 2: 2}, (frozenset({1, 2}),))
    with pytest.raises(InvalidArgument, match="one holder"):
        make_scheduler("rotation", Workload(((1.0,),), replicated))


def test_the_list_of_schedulers_is_complete_and_has_one_default():
    rows = list_schedulers()
    assert [name for name, *_ in rows] == list(SCHEDULERS)
    assert [name for name, _, _, is_default, _ in rows if is_default] == ["auto"]


def test_a_large_workload_is_not_simulated():
    choice = choose_scheduler(Workload(((1.0,) * 4,) * 5000, Placement.shared([1, 2], 4)), max_units=10_000)
    assert (choice.name, choice.makespan_seconds, choice.alternatives) == ("longest_remaining", None, {})
    assert choice.bound_seconds == 10_000.0
