"""Trials that take all partitions at once, under the coordinator's loop in a simulated world."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.coordinator.orders import order_of
from easeml_db.decisions.hopper.allocation.contract import Start
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.errors import SlotLost
from easeml_db.postgres.sessions.gang_call import order_json
from easeml_db.simulated import Faults, SimulatedWorld, new_run
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import n_steps_total, unit_at
from tests.unit.coordinator.test_coordinator import one_second, serve, slots, states, uneven_seconds, visits

ALLOCATIONS = ("hopping", "data_parallel", "auto", "water_filling")
SCHEDULERS = ("auto", "longest_remaining", "rotation", "random", "vector_rearrangement")


def mixed_run(allocation="hopping", **options):
    options = {"n_trials": 5, "n_partitions": 3, "max_epochs": 2, "architectures": ("trees", "mlp")} | options
    return new_run(1, allocation=allocation, **options)


def check(world, run):
    """Every round of a whole trial is on one slot, its units one after the other; nothing is done twice or left out."""
    assert states(world) == ("finished", ["finished"] * len(run.trials))
    assert (
        len(visits(world)) == len(world.units) == sum(n_steps_total(t.n_partitions, t.max_epochs) for t in run.trials)
    )
    by_slot, rounds = {}, {}
    for unit in world.units:
        u = unit.order.unit
        if run.architectures[u.trial_id] == "trees":
            assert unit.n_slots == 1
            rounds.setdefault((u.trial_id, u.kind, u.epoch), []).append(unit)
        by_slot.setdefault(unit.order.slot_id, []).append((unit.started_seconds, unit.finished_seconds))
    for units in rounds.values():
        assert len({unit.order.slot_id for unit in units}) == 1
        assert all(a.finished_seconds == pytest.approx(b.started_seconds) for a, b in pairwise(units))
    for times in by_slot.values():
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(sorted(times)))


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@pytest.mark.parametrize("n_slots", [1, 2, 4])
def test_every_allocation_serves_them_beside_others(allocation, n_slots):
    run = mixed_run(allocation)
    world = SimulatedWorld(slots(n_slots), [run], seconds_of=uneven_seconds)
    serve(world)
    check(world, run)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_serves_them_beside_others(scheduler):
    run = mixed_run(scheduler=scheduler, visit_order="free")
    world = SimulatedWorld(slots(2), [run], seconds_of=uneven_seconds)
    serve(world)
    check(world, run)


def test_a_round_takes_the_time_of_its_units_and_estimates_are_of_one():
    run = mixed_run(n_trials=2, architectures=("trees",))
    world = SimulatedWorld(slots(2), [run], seconds_of=one_second)
    serve(world)
    assert world.now_seconds == n_steps_total(3, 2)
    dispatcher = Dispatcher()
    dispatcher.board.keep(slots(1))
    dispatcher.board.ready(1)
    dispatcher.put_run(mixed_run(n_trials=1, architectures=("trees",)))
    dispatcher.runs.open_arm(1, 1001, 1)
    (start,) = dispatcher.next_starts()
    dispatcher.recorded(start.slots[0], 6.0)
    assert dispatcher.runs[1].work.seconds.known(100_001, "trees", "train") == 2.0


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(ALLOCATIONS), st.integers(1, 4), st.integers(1, 4), st.integers(1, 40), st.integers(0, 6))
def test_killed_and_with_lost_sessions_they_come_to_the_same_visits(allocation, n_slots, p, dies_at_call, n_lost):
    run = mixed_run(allocation, n_partitions=p, scheduler="longest_remaining")
    undisturbed = SimulatedWorld(slots(n_slots), [run], seconds_of=one_second)
    serve(undisturbed)
    left = [n_lost]

    def failure_of(order):
        left[0] -= 1
        return SlotLost("gone") if left[0] in (0, 3) else None

    world = SimulatedWorld(slots(n_slots), [run], seconds_of=one_second, faults=Faults(failure_of=failure_of))
    serve(world, dies_at_call=dies_at_call)
    serve(world)
    assert visits(world) == visits(undisturbed)
    assert Counter(unit.n_slots for unit in world.units if is_tree(run, unit)).keys() <= {1}


def is_tree(run, unit):
    return run.architectures[unit.order.unit.trial_id] == "trees"


def test_where_slots_hold_only_some_partitions_they_run_where_all_are():
    run = mixed_run(n_partitions=2, holders=[{1, 2}, {2}])
    world = SimulatedWorld([Slot(1, "some", 1), Slot(2, "all", 2)], [run], seconds_of=uneven_seconds)
    serve(world)
    check(world, run)
    assert {unit.order.slot_id for unit in world.units if is_tree(run, unit)} == {2}
    assert {unit.order.slot_id for unit in world.units if not is_tree(run, unit)} == {1, 2}


def test_an_order_of_a_whole_round_names_its_slot_once_and_every_unit_with_its_seed():
    trial = mixed_run(architectures=("trees",)).trials[0]
    units = tuple(unit_at(trial, step) for step in range(3))
    order = order_of(Start(units, (4,)), 7, lease_number=1, attempt=1)
    assert (order.slot_ids, order.is_whole, order.is_gang) == ((4,), True, False)
    assert [each.unit for each in order.alone()] == list(units)
    assert len({each.seed for each in order.alone()}) == 3
    assert order_json(order).count('"slot_id": 4') == 4
    assert not order_of(Start(units[:1], (4,)), 7, lease_number=1, attempt=1).is_whole
