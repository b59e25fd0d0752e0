"""Runs with water-filling in a simulated world: measurements first, then shares, whatever fails meanwhile."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.settings import Settings
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.errors import SlotLost, TrialFailed
from easeml_db.simulated import Faults, Killed, SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.tenant import Tenancy, Tenant
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import PILOT, n_steps_total

PATIENT = Settings(max_attempts=10**9, reclaim_bytes=10_000)


def shared(*n_slots, kind="cpu"):
    """Slots on devices with so many each."""
    numbered = [(device, k) for device, n in enumerate(n_slots) for k in range(n)]
    return [Slot(i, f"slot-{i}", 1, f"{kind}:{device}") for i, (device, _) in enumerate(numbered, start=1)]


def filled(run_id=1, *, joint=(), **more):
    shape = {"n_trials": 4, "n_partitions": 2, "max_epochs": 2} | more
    return replace(new_run(run_id, **shape), allocation="water_filling", joint_architectures=frozenset(joint))


def uneven(unit, slot_id):
    return 0.5 + unit.trial_number % 3


def free(n_packed):
    return 1.0


def linear(n_packed):
    return float(n_packed)


def serve(world, *, dies_at_call=None, options=PATIENT):
    process = SimulatedProcess(world, dies_at_call)
    try:
        asyncio.run(Coordinator(process.ports, options).serve(until_idle=True))
    except Killed:
        return True
    return False


def logs(world, run_id=1):
    return [log for run, _, log in world.tables.allocations if run == run_id]


def share_changes(world, run_id=1):
    return [each for log in logs(world, run_id) for each in log.changes]


def check_complete(world, runs):
    for run in runs:
        found = world.tables.run(run.run_id)
        assert (found.status, {trial.status for trial in found.trials}) == ("finished", {"finished"})
    expected = sum(n_steps_total(t.n_partitions, t.max_epochs) for run in runs for t in run.trials)
    assert len(world.units) == expected


def overlapping(world, slots, run_id=1):
    """Most units of a run under way at once on each device."""
    most = Counter()
    units = [unit for unit in world.units if unit.order.unit.run_id == run_id]
    for device in {slot.device_name for slot in slots}:
        mine = [u for u in units if world.device_of(u.order.slot_id) == device]
        for unit in mine:
            moment = unit.started_seconds
            at_once = sum(u.started_seconds <= moment < u.finished_seconds for u in mine)
            most[device] = max(most[device], at_once)
    return most


def test_a_device_is_measured_before_the_first_unit_and_then_shared():
    slots, run = shared(2, 2), filled()
    world = SimulatedWorld(slots, [run], seconds_of=uneven, slowdown_of=free)
    serve(world)
    check_complete(world, [run])
    measured = world.tables.profiles["mlp", "cpu"]
    assert (measured.profile.c, measured.n_packed) == (2, 2)
    assert min(unit.started_seconds for unit in world.units) >= 3.0  # alone, alone, together
    assert {each.share.width for each in share_changes(world)} >= {0.5}
    assert set(overlapping(world, slots).values()) == {2}


def test_where_sharing_does_not_pay_every_trial_has_a_device_of_its_own():
    slots, run = shared(2, 2), filled()
    world = SimulatedWorld(slots, [run], seconds_of=uneven, slowdown_of=linear)
    serve(world)
    check_complete(world, [run])
    assert world.tables.profiles["mlp", "cpu"].profile.c == 1
    assert {each.share.width for each in share_changes(world)} == {1.0}
    assert set(overlapping(world, slots).values()) == {1}


def test_what_is_known_is_not_measured_again():
    run = filled()
    world = SimulatedWorld(shared(2, 2), [run], seconds_of=uneven, slowdown_of=free)
    known = MeasuredProfile(Profile(1.2, c=2), 0.1, 2, 1)
    world.tables.profiles["mlp", "cpu"] = known
    serve(world)
    check_complete(world, [run])
    assert world.tables.profiles == {("mlp", "cpu"): known}
    assert not world.pilots_begun


def test_slots_of_their_own_need_no_measurement():
    slots = [Slot(i, f"slot-{i}", 1) for i in (1, 2)]
    run = filled()
    world = SimulatedWorld(slots, [run], seconds_of=uneven)
    serve(world)
    check_complete(world, [run])
    assert not world.tables.profiles
    assert {each.share.width for each in share_changes(world)} == {1.0}


def test_the_last_trial_of_a_network_trains_on_several_devices():
    slots, run = shared(1, 1, 1), filled(joint=["mlp"], n_trials=2, n_partitions=3, max_epochs=4)
    world = SimulatedWorld(slots, [run], seconds_of=uneven)
    serve(world)
    check_complete(world, [run])
    assert world.tables.profiles["mlp", "cpu"].profile.d == 3
    assert max(each.share.width for each in share_changes(world)) == 3
    assert max(overlapping(world, slots).values()) == 1
    at_once = Counter((unit.order.unit.trial_id, unit.started_seconds) for unit in world.units)
    assert max(at_once.values()) >= 2


def test_a_trial_has_no_more_devices_than_partitions():
    run = filled(joint=["mlp"], n_trials=1, n_partitions=2)
    world = SimulatedWorld(shared(1, 1, 1), [run], seconds_of=uneven)
    serve(world)
    check_complete(world, [run])
    assert max(each.share.width for each in share_changes(world)) == 2
    at_once = Counter(unit.started_seconds for unit in world.units)
    assert set(at_once.values()) == {2}


def test_where_gangs_fail_each_trial_has_one_device():
    def failure(order):
        return TrialFailed("no network") if order.unit.kind == PILOT and order.measured_seconds else None

    run = filled(joint=["mlp"], n_trials=1)
    world = SimulatedWorld(shared(1, 1), [run], seconds_of=uneven, faults=Faults(failure_of=failure))
    serve(world)
    check_complete(world, [run])
    assert {each.share.width for each in share_changes(world)} == {1}


def test_groups_come_with_a_label_and_end():
    world = SimulatedWorld(shared(2), [filled()], seconds_of=uneven)
    serve(world)
    found = logs(world)
    assert [group.group_number for log in found for group in log.groups] == [1]
    assert [number for log in found for number in log.ended] == [1]


def test_gpus_are_shared_out_and_nothing_else():
    slots = [*shared(2, kind="cuda"), Slot(9, "slot-9", 1)]
    run = filled()
    world = SimulatedWorld(slots, [run], seconds_of=uneven)
    serve(world)
    check_complete(world, [run])
    assert {unit.order.slot_id for unit in world.units} == {1, 2}


def test_partitions_that_are_placed_are_visited_where_they_are():
    slots = [replace(slot, segment_id=1 + slot.slot_id % 2) for slot in shared(2, 2)]
    run = filled(holders=[{1}, {2}])
    world = SimulatedWorld(slots, [run], seconds_of=uneven)
    serve(world)
    check_complete(world, [run])
    assert not share_changes(world)


def test_another_run_keeps_off_devices_that_a_trial_has_to_itself():
    slots = shared(2, 2)
    one, other = filled(1, n_trials=2), new_run(2, n_trials=4, n_partitions=2, max_epochs=1)
    world = SimulatedWorld(slots, [one, other], seconds_of=uneven, slowdown_of=linear)
    serve(world)
    check_complete(world, [one, other])
    begun = min(u.started_seconds for u in world.units if u.order.unit.run_id == 1)
    ended = min(max(u.finished_seconds for u in world.units if u.order.unit.trial_id == t.trial_id) for t in one.trials)
    beside = [u for u in world.units if u.order.unit.run_id == 2 and begun < u.started_seconds < ended]
    assert not beside


def test_a_tenant_gets_no_more_slots_than_it_may_have():
    slots, run = shared(2, 2), filled()
    world = SimulatedWorld(slots, [run], seconds_of=uneven, slowdown_of=free)
    world.tables.tenancy = Tenancy(tenants={"tenant": Tenant("tenant", max_slots=1)})
    serve(world)
    check_complete(world, [run])
    assert {unit.order.slot_id for unit in world.units} == {1}


def test_a_trial_that_fails_only_beside_others_goes_on_alone():
    def failure(order):
        packed = (
            order.measured_seconds and world.pilots_begun[world.device_of(order.slot_id), world.now_seconds - 1] > 1
        )
        return TrialFailed("out of memory") if packed else None

    run = filled()
    world = SimulatedWorld(shared(2, 2), [run], seconds_of=uneven, faults=Faults(failure_of=failure))
    serve(world)
    check_complete(world, [run])
    assert world.tables.profiles["mlp", "cpu"].profile.c == 1


def test_a_trial_that_always_fails_does_so_without_the_others():
    def failure(order):
        return TrialFailed("no") if order.unit.trial_number == 1 else None

    run = filled()
    world = SimulatedWorld(shared(2, 2), [run], seconds_of=uneven, faults=Faults(failure_of=failure))
    serve(world)
    states = [trial.status for trial in world.tables.run(1).trials]
    assert states == ["failed", "finished", "finished", "finished"]


@pytest.mark.parametrize("n_slots", [(1,), (2,), (3, 1), (2, 2, 2)])
def test_trials_of_several_architectures_share_devices(n_slots):
    run = filled(n_trials=5, architectures=("mlp", "linear"))
    world = SimulatedWorld(shared(*n_slots), [run], seconds_of=uneven, slowdown_of=free)
    serve(world)
    check_complete(world, [run])


# Whatever fails

moments = st.floats(0.0, 40.0, width=16)
losses = st.lists(st.tuples(moments, st.integers(1, 5), st.floats(0.0, 10.0, width=16)), max_size=4)
changes = st.lists(st.tuples(moments, st.lists(st.integers(0, 3), min_size=1, max_size=3)), max_size=3)


@st.composite
def loads(draw):
    shapes = st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 2), st.booleans())
    joint = draw(st.sampled_from([frozenset(), frozenset({"mlp"})]))
    drawn = draw(st.lists(shapes, min_size=1, max_size=2))
    runs = [
        new_run(i, n_trials=n, n_partitions=p, max_epochs=e, seed=i, architectures=("mlp", "linear"))
        for i, (n, p, e, _) in enumerate(drawn, start=1)
    ]
    is_filled = [True, *(each[3] for each in drawn[1:])]
    return [
        replace(run, allocation="water_filling", joint_architectures=joint) if wanted else run
        for run, wanted in zip(runs, is_filled, strict=True)
    ]


@settings(max_examples=30, deadline=None)
@given(
    loads(), st.lists(st.integers(1, 3), min_size=1, max_size=3), losses, changes,
    st.lists(st.integers(1, 80), max_size=3), st.sampled_from([free, linear, lambda n: 1.2 ** (n - 1)]),
)  # fmt: skip
def test_lost_slots_devices_that_come_and_go_and_kills_lose_nothing(runs, n_slots, lost, changed, kills, slowdown):
    world = SimulatedWorld(shared(*n_slots), runs, seconds_of=uneven, slowdown_of=slowdown)
    for at, slot_id, down in lost:
        world.at(at, lambda slot_id=slot_id, down=down: world.lose_slot(slot_id, down))
    for at, counts in changed:
        world.at(at, lambda counts=counts: world.set_slots(shared(*counts)))
    world.at(100.0, lambda: world.set_slots(shared(*n_slots)))
    for k in [*kills, None]:
        serve(world, dies_at_call=k)
    check_complete(world, runs)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5), st.integers(0, 7))
def test_units_that_are_lost_run_again(n_lost, offset):
    left = Counter({0: n_lost})

    def failure(order):
        if order.unit.kind != PILOT and (order.unit.step + offset) % 3 == 0 and left[0]:
            left[0] -= 1
            return SlotLost("gone")
        return None

    run = filled()
    world = SimulatedWorld(shared(2, 2), [run], seconds_of=uneven, slowdown_of=free, faults=Faults(failure_of=failure))
    serve(world)
    check_complete(world, [run])


def test_tenants_with_limits_do_not_wait_for_one_slot_while_others_are_idle():
    runs = [replace(filled(number, n_trials=1), tenant=f"tenant {number}") for number in (1, 2)]
    world = SimulatedWorld(shared(1, 1, 1), runs, seconds_of=uneven, slowdown_of=free)
    world.tables.tenancy = Tenancy(tenants={run.tenant: Tenant(run.tenant, max_slots=1) for run in runs})
    serve(world)
    check_complete(world, runs)
    first_ends, second_begins = (
        edge(
            moment
            for u in world.units
            if u.order.unit.run_id == number
            for moment in (u.started_seconds, u.finished_seconds)
        )
        for number, edge in ((1, max), (2, min))
    )
    assert second_begins < first_ends
