"""Batches of trials under the coordinator's loop in a simulated world."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.coordinator.orders import order_of
from easeml_db.coordinator.settings import Settings
from easeml_db.decisions.hopper.allocation.contract import Start
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.decisions.hopper.work.batches import (
    ENOUGH_BATCHES,
    LONGEST_BATCH_SECONDS,
    LONGEST_UNIT_SECONDS,
    MOST_MEMBERS,
    BatchGains,
    batch_width,
)
from easeml_db.errors import ServerCrashed, SlotLost, StaleLease, TrialFailed
from easeml_db.postgres.sessions.gang_call import order_json
from easeml_db.simulated import Faults, SimulatedWorld, new_run
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import n_steps_total, unit_at
from tests.unit.coordinator.test_coordinator import serve, slots, states, visits

SETTINGS = Settings(max_attempts=3)


def alike(number):
    return "alike"


def batched_run(**options):
    options = {"n_trials": 6, "n_partitions": 2, "max_epochs": 2, "batch_key_of": alike} | options
    return new_run(1, allocation="batched", **options)


def tenth(unit, slot_id):
    return 0.1


def widths(world):
    """How many units were recorded of each order, by the instant at which it was recorded on its slot."""
    orders = defaultdict(set)
    for unit in world.units:
        one = unit.order
        orders[one.slot_id, round(unit.started_seconds, 6)].add(one.unit.trial_id)
    return Counter(len(each) for each in orders.values())


def n_together(world, run):
    """How much less than the sum of its units a run took on one slot: 1 without batches."""
    n_units = sum(n_steps_total(trial.n_partitions, trial.max_epochs) for trial in run.trials)
    return n_units * 0.1 / world.now_seconds


def test_trials_of_one_shape_share_a_slot_and_take_less_time():
    run = batched_run()
    world = SimulatedWorld(slots(1), [run], seconds_of=tenth, batch_share=0.2)
    serve(world)
    assert states(world) == ("finished", ["finished"] * 6)
    assert n_together(world, run) > 2
    alone = SimulatedWorld(slots(1), [batched_run(batch_key_of=lambda number: str(number))], seconds_of=tenth)
    serve(alone)
    assert visits(world) == visits(alone)
    by_slot = sorted((unit.started_seconds, unit.finished_seconds) for unit in world.units)
    assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(by_slot))  # its time is counted once


def first_starts(n_slots, run, unit_seconds=0.1, limit=None):
    """What is started once a unit of the first trial has been recorded, and it is known what units take."""
    dispatcher = Dispatcher()
    dispatcher.board.keep(slots(n_slots))
    for slot_id in range(1, n_slots + 1):
        dispatcher.board.ready(slot_id)
    if limit is not None:
        dispatcher.limits.set_limits({"tenant": limit})
    dispatcher.put_run(run)
    for arm in run.arms:
        dispatcher.runs.open_arm(1, arm.arm_id, arm.arm_id)
    alone = dispatcher.next_starts()
    for start in alone:
        assert len(start.units) == 1  # nobody knows yet what a unit takes
        dispatcher.recorded(start.slots[0], unit_seconds)
    return dispatcher, dispatcher.next_starts()


@pytest.mark.parametrize(
    ("n_trials", "n_slots", "wanted"), [(6, 1, [6]), (6, 2, [3, 3]), (7, 2, [4, 3]), (2, 2, [1, 1])]
)
def test_idle_trials_are_shared_out_among_the_slots(n_trials, n_slots, wanted):
    _, starts = first_starts(n_slots, batched_run(n_trials=n_trials))
    assert [len(start.units) for start in starts] == wanted
    assert all(len({unit.trial_id for unit in start.units}) == len(start.units) for start in starts)


def test_only_trials_with_the_same_key_and_kind_of_unit_are_together():
    run = batched_run(n_trials=8, batch_key_of=lambda number: None if number == 1 else str(number % 2))
    dispatcher, starts = first_starts(1, run)
    keys = [{run.batch_keys.get(unit.trial_id) for unit in start.units} for start in starts]
    assert all(len(each) == 1 for each in keys)
    assert {len({unit.kind for unit in start.units}) for start in starts} == {1}
    while starts:
        for start in starts:
            found = {run.batch_keys.get(unit.trial_id) for unit in start.units}
            assert len(found) == 1
            assert len(start.units) == 1 or found != {None}
            assert len({unit.kind for unit in start.units}) == 1
            dispatcher.recorded(start.slots[0], 0.1)
        starts = dispatcher.next_starts()


def test_a_tenant_with_one_slot_has_its_trials_on_that_slot():
    _, starts = first_starts(2, batched_run(), limit=1)
    assert [len(start.units) for start in starts] == [6]


def test_long_units_run_alone():
    _, starts = first_starts(1, batched_run(), unit_seconds=LONGEST_UNIT_SECONDS * 1.1)
    assert [len(start.units) for start in starts] == [1]


@given(st.integers(1, 500), st.integers(1, 20), st.one_of(st.none(), st.floats(0, 2)))
def test_a_batch_keeps_to_its_bounds(n_trials, n_slots, unit_seconds):
    width = batch_width(n_trials, n_slots, unit_seconds)
    assert 1 <= width <= MOST_MEMBERS
    assert width == 1 or (width - 1) * n_slots < n_trials
    if unit_seconds is None or unit_seconds > LONGEST_UNIT_SECONDS:
        assert width == 1
    else:
        assert width == 1 or width * unit_seconds <= LONGEST_BATCH_SECONDS * (1 + 1e-9)


def test_batches_that_gain_nothing_are_given_up():
    gains = BatchGains()
    assert gains.pays("a")
    gains.observe("a", 1, 0.1)
    for _ in range(ENOUGH_BATCHES):
        assert gains.pays("a")
        gains.observe("a", 4, 0.5)
    assert not gains.pays("a")
    assert gains.pays("b")
    gains.observe("a", 4, 0.3)
    assert gains.pays("a")


def test_where_slots_hold_only_some_partitions_members_meet_what_their_slot_holds():
    run = batched_run(holders=[{1}, {2}])
    world = SimulatedWorld([Slot(1, "one", 1), Slot(2, "two", 2)], [run], seconds_of=tenth)
    serve(world)
    assert states(world) == ("finished", ["finished"] * 6)
    assert {(unit.order.slot_id, unit.order.unit.partition_number) for unit in world.units} == {(1, 0), (2, 1)}


def test_free_order_prefers_the_partition_that_the_first_one_meets():
    run = batched_run(n_trials=6, n_partitions=3, visit_order="free")
    _, starts = first_starts(1, run)
    assert {unit.partition_number for unit in starts[0].units[1:-1]} == {starts[0].unit.partition_number}


# What goes wrong


def faulty(error, trial_number, *, step=None, once=True):
    """A fault of one trial's units, told to its batch."""
    left = [1]

    def failure_of(order):
        unit = order.unit
        if unit.trial_number != trial_number or (step is not None and unit.step != step) or (once and not left[0]):
            return None
        left[0] -= 1
        return error

    return Faults(failure_of=failure_of)


def test_a_member_that_fails_fails_alone():
    run = batched_run()
    undisturbed = SimulatedWorld(slots(1), [run], seconds_of=tenth)
    serve(undisturbed)
    world = SimulatedWorld(slots(1), [run], seconds_of=tenth, faults=faulty(TrialFailed("diverged"), 3, step=4))
    serve(world)
    assert states(world) == ("finished", ["finished", "finished", "failed", "finished", "finished", "finished"])
    assert {v for v in visits(undisturbed) if v[0] != 100_003} == {v for v in visits(world) if v[0] != 100_003}


def test_a_member_that_is_refused_is_offered_again():
    run = batched_run()
    world = SimulatedWorld(slots(2), [run], seconds_of=tenth, faults=faulty(StaleLease("not due"), 3, step=4))
    serve(world)
    assert states(world) == ("finished", ["finished"] * 6)


def test_whoever_loses_its_slot_again_and_again_is_found_out_alone():
    """Each batch with the third trial is lost; the others then go on without it, and are blamed for nothing."""
    run = batched_run()
    world = SimulatedWorld(slots(2), [run], seconds_of=tenth, faults=faulty(SlotLost("gone"), 3, step=2, once=False))
    serve(world, options=SETTINGS)
    assert states(world) == ("finished", ["finished", "finished", "failed", "finished", "finished", "finished"])


def test_a_batch_that_crashed_the_server_is_not_tried_again():
    """To find the culprit, the server would have to crash again, for everybody."""
    world = SimulatedWorld(
        slots(2), [batched_run()], seconds_of=tenth, faults=faulty(ServerCrashed("gone"), 3, step=2, once=False)
    )
    serve(world, options=SETTINGS)
    assert states(world) == ("failed", ["failed"] * 6)
    assert [kind for kind, _ in world.tables.notes].count("crashed") <= 6, "once for each trial of the batch"


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 60), st.integers(0, 8), st.sampled_from(["cyclic", "free"]))
def test_killed_and_with_lost_sessions_nothing_is_lost_or_doubled(n_slots, p, dies_at_call, n_lost, visit_order):
    run = batched_run(n_partitions=p, visit_order=visit_order)
    left = [n_lost]

    def failure_of(order):
        left[0] -= 1
        return SlotLost("gone") if left[0] in (0, 5) else None

    world = SimulatedWorld(slots(n_slots), [run], seconds_of=tenth, faults=Faults(failure_of=failure_of))
    serve(world, dies_at_call=dies_at_call)
    serve(world)
    assert states(world) == ("finished", ["finished"] * 6)
    assert (
        len(visits(world)) == len(world.units) == sum(n_steps_total(t.n_partitions, t.max_epochs) for t in run.trials)
    )


def test_cancelled_and_resumed_it_comes_to_its_end():
    run = batched_run()
    world = SimulatedWorld(slots(1), [run], seconds_of=tenth)
    world.at(0.35, lambda: world.cancel_run(1))
    serve(world)
    assert states(world)[0] == "cancelled"
    world.resume_run(1)
    serve(world)
    assert states(world) == ("finished", ["finished"] * 6)
    assert len(visits(world)) == len(world.units)


def test_an_order_of_a_batch_names_every_unit_with_its_seed():
    trials = batched_run().trials[:3]
    order = order_of(Start(tuple(unit_at(each, 0) for each in trials), (4,)), 7, lease_number=1, attempt=1)
    assert (order.slot_ids, order.is_batch, order.is_whole, order.is_gang) == ((4,), True, False, False)
    assert [each.unit.trial_id for each in order.by_trial()] == [trial.trial_id for trial in trials]
    members = json.loads(order_json(order))["batch"]
    assert [each["trial_id"] for each in members] == [trial.trial_id for trial in trials]
    assert len({each["seed"] for each in members}) == 3
    assert {each["slot_id"] for each in members} == {4}
