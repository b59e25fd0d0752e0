"""The coordinator's loop in a simulated world: its rules hold whatever fails, and nothing waits on a real clock."""

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.coordinator.crashes import CarriedOver
from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.ports.messages import Order, SlotReady, UnitFailed
from easeml_db.coordinator.settings import Settings
from easeml_db.decisions.hopper.schedulers.bounds import shared_bound
from easeml_db.errors import (
    NotFound,
    OutOfSpace,
    ServerBusy,
    ServerCrashed,
    SlotLost,
    StandbyOnly,
    TrialFailed,
    VersionMismatch,
)
from easeml_db.simulated import BrokenRule, Faults, Killed, SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.tenant import PastArm
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import n_steps_total, unit_at, unit_seed

SETTINGS = Settings(reclaim_bytes=10_000)
BIG = 10**9


def slots(n):
    return [Slot(i, f"slot-{i}", 1) for i in range(1, n + 1)]


def one_second(unit, slot_id):
    return 1.0


def uneven_seconds(unit, slot_id):
    """Fixed for each unit, different for each trial, never equal."""
    return 0.25 + (unit.trial_number * 7 + unit.partition_number * 3 + unit.step) % 5 + unit.trial_id / 1e5


def coordinator(process, options=SETTINGS):
    return Coordinator(process.ports, options)


def serve(world, *, dies_at_call=None, dies_at_seconds=None, until_idle=True, options=SETTINGS):
    """Run one coordinator to its end; return its ports and whether it was killed."""
    process = SimulatedProcess(world, dies_at_call)
    if dies_at_seconds is not None:
        world.at(dies_at_seconds, process.die)
    try:
        asyncio.run(coordinator(process, options).serve(until_idle=until_idle))
    except Killed:
        return process, True
    return process, False


def states(world, run_id=1):
    run = world.tables.run(run_id)
    return run.status, [trial.status for trial in run.trials]


def visits(world):
    """What must not depend on clock, slots or faults."""
    return {
        (u.order.unit.trial_id, u.order.unit.kind, u.order.unit.epoch, u.order.unit.partition_number, u.order.seed)
        for u in world.units
    }


def check_rules(world, runs):
    """Every trial met its units in order, each once; no slot and no trial was in two units at once."""
    by_trial, by_slot = defaultdict(list), defaultdict(list)
    for unit in world.units:
        by_trial[unit.order.unit.trial_id].append(unit)
        by_slot[unit.order.slot_id].append(unit)
    for run in runs:
        for trial in run.trials:
            done = [unit.order.unit for unit in by_trial[trial.trial_id]]
            assert done == [unit_at(trial, step, unit.partition_number) for step, unit in enumerate(done)]
            check_visits(trial, [unit.partition_number for unit in done])
            for unit in by_trial[trial.trial_id]:
                u = unit.order.unit
                assert unit.order.seed == unit_seed(run.seed, u.trial_number, u.epoch, u.partition_number)
    for units in by_trial.values():
        check_gangs(units)
    for units in [*by_trial.values(), *by_slot.values()]:
        # A gang's units have the same times; on a slot there is one of them.
        times = [(unit.started_seconds, unit.finished_seconds) for unit in units]
        ordered = sorted(set(times) if units in by_trial.values() else times)
        assert all(a[1] <= b[0] for a, b in pairwise(ordered))


def check_gangs(units):
    """The units of a gang follow one another within one round, each on a slot of its own, at the same time."""
    rest = list(units)
    while rest:
        gang, rest = rest[: rest[0].n_slots], rest[rest[0].n_slots :]
        assert {unit.n_slots for unit in gang} == {len(gang)}
        assert len({(u.order.unit.kind, u.order.unit.epoch, u.started_seconds, u.finished_seconds) for u in gang}) == 1
        assert len({unit.order.slot_id for unit in gang}) == len(gang)


def check_visits(trial, partitions):
    """Every round meets every partition exactly once, in cyclic order where that is asked for."""
    p = trial.n_partitions
    rounds = [partitions[i : i + p] for i in range(0, len(partitions), p)]
    assert all(len(set(met)) == len(met) for met in rounds)
    if trial.visit_order == "cyclic":
        assert partitions == [(trial.trial_number + k) % p for k in range(len(partitions))]


def check_complete(world, runs):
    check_rules(world, runs)
    for run in runs:
        assert states(world, run.run_id) == ("finished", ["finished"] * len(run.trials))
    expected = sum(n_steps_total(t.n_partitions, t.max_epochs) for run in runs for t in run.trials)
    assert len(world.units) == expected


# An undisturbed run


def test_every_trial_meets_every_partition_once_an_epoch_in_cyclic_order():
    run = new_run(1, n_trials=3, n_partitions=4, max_epochs=2, seed=-5)
    world = SimulatedWorld(slots(2), [run], seconds_of=uneven_seconds)
    serve(world)
    check_complete(world, [run])
    for trial in run.trials:
        train = [u.order.unit for u in world.units if u.order.unit.trial_id == trial.trial_id]
        for epoch in (1, 2):
            met = [u.partition_number for u in train if u.kind == "train" and u.epoch == epoch]
            assert met == [(trial.trial_number + k) % 4 for k in range(4)]


@st.composite
def loads(draw):
    shapes = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 2))
    orders = st.sampled_from(["cyclic", "free"])
    names = st.sampled_from(["auto", "longest_remaining", "random", "rotation"])
    allocations = st.sampled_from(["hopping", "data_parallel", "auto"])
    runs = [
        new_run(
            i, n_trials=n, n_partitions=p, max_epochs=e, seed=i, architectures=("mlp", "linear"),
            scheduler=draw(names), visit_order=draw(orders), allocation=draw(allocations),
            joint_architectures=draw(st.sampled_from([("mlp", "linear"), ("mlp",)])),
        )
        for i, (n, p, e) in enumerate(draw(st.lists(shapes, min_size=1, max_size=2)), start=1)
    ]  # fmt: skip
    seconds = draw(st.lists(st.floats(0.0, 9.0, width=16), min_size=5, max_size=5))
    return runs, draw(st.integers(1, 4)), lambda unit, slot_id: seconds[(unit.trial_id + unit.step + slot_id) % 5]


moments = st.floats(0.0, 40.0, width=16)
lost_slots = st.lists(st.tuples(moments, st.integers(1, 4), st.floats(0.0, 10.0, width=16)), max_size=4)


@settings(max_examples=30, deadline=None)
@given(loads(), lost_slots, st.lists(st.integers(1, 60), max_size=3), st.floats(0.0, 2.0, width=16))
def test_lost_slots_and_kills_change_nothing_that_is_recorded(load, losses, kills, warm_seconds):
    runs, n_slots, seconds_of = load
    world = SimulatedWorld(slots(n_slots), runs, seconds_of=seconds_of, warm_seconds=warm_seconds)
    for at, slot_id, down in losses:
        world.at(at, lambda slot_id=slot_id, down=down: world.lose_slot(slot_id, down))
    patient = Settings(max_attempts=BIG, reclaim_bytes=10_000)
    for k in [*kills, None]:
        process, was_killed = serve(world, dies_at_call=k, options=patient)
        assert process.n_calls == (k if was_killed else process.n_calls)
    check_complete(world, runs)


@settings(max_examples=40, deadline=None)
@given(loads(), st.data())
def test_a_failing_trial_never_blocks_the_others(load, data):
    runs, n_slots, seconds_of = load
    trials = [trial for run in runs for trial in run.trials]
    bad = data.draw(st.dictionaries(st.sampled_from([t.trial_id for t in trials]), st.integers(0, 6), max_size=3))

    def failure_of(order):
        return TrialFailed("loss is nan") if bad.get(order.unit.trial_id) == order.unit.step else None

    world = SimulatedWorld(slots(n_slots), runs, seconds_of=seconds_of, faults=Faults(failure_of))
    serve(world)
    check_rules(world, runs)
    for run in runs:
        status, trial_states = states(world, run.run_id)
        has_failed = [
            bad.get(t.trial_id, BIG) < n_steps_total(t.n_partitions, t.max_epochs) for t in run.trials
        ]  # fmt: skip
        assert trial_states == ["failed" if failed else "finished" for failed in has_failed]
        assert status == ("failed" if all(has_failed) else "finished")


@settings(max_examples=30, deadline=None)
@given(loads(), st.data())
def test_requests_at_any_time_leave_every_run_ended_and_no_rule_broken(load, data):
    runs, n_slots, seconds_of = load
    world = SimulatedWorld(slots(n_slots), runs, seconds_of=seconds_of)
    late = new_run(9, n_trials=2, n_partitions=2, max_epochs=1)
    acts = data.draw(st.lists(st.tuples(moments, st.sampled_from(["cancel", "resume", "shrink", "grow"])), max_size=6))

    def act(name):
        status = world.tables.run(1).status
        if name == "cancel" and status in ("queued", "running"):
            world.cancel_run(1)
        elif name == "resume" and status in ("cancelled", "failed"):
            world.resume_run(1)
        elif name in ("shrink", "grow"):
            world.set_slots(slots(1 if name == "shrink" else n_slots + 1))

    for at, name in acts:
        world.at(at, lambda name=name: act(name))
    world.at(data.draw(moments), lambda: world.add_run(late))
    world.at(2000.0, world.stop)
    serve(world, until_idle=False, options=Settings(max_attempts=BIG))
    check_rules(world, [*runs, late])
    assert states(world, 9) == ("finished", ["finished"] * 2)
    assert states(world)[0] in ("finished", "cancelled")


# Attempts


def small_world(**options):
    """A run without arms: its trials need no opening."""
    run = replace(new_run(1, n_trials=3, n_partitions=2, max_epochs=1), arms=(), arm_of={})
    return run, SimulatedWorld(slots(2), [run], seconds_of=uneven_seconds, **options)


def test_a_unit_that_is_lost_every_time_fails_its_trial_after_the_limit():
    attempts = Counter()

    def failure_of(order):
        attempts[order.unit.trial_number, order.attempt] += 1
        return SlotLost("gone") if order.unit.trial_number == 2 else None

    _, world = small_world(faults=Faults(failure_of))
    serve(world)
    assert states(world) == ("finished", ["finished", "failed", "finished"])
    assert [attempts[2, n] for n in range(1, 5)] == [1, 1, 1, 0]
    assert [kind for kind, _ in world.tables.notes] == ["retry", "retry", "retry", "failed"]


def test_the_limit_counts_attempts_at_one_unit_not_at_the_trial():
    def failure_of(order):
        return SlotLost("gone") if order.attempt < 3 else None

    run, world = small_world(faults=Faults(failure_of))
    serve(world)
    check_complete(world, [run])
    assert {unit.order.attempt for unit in world.units} == {3}


def test_a_unit_whose_answer_is_lost_is_recorded_once_and_costs_no_attempt():
    run, world = small_world(faults=Faults(is_answer_lost=lambda order: True))
    serve(world, options=Settings(max_attempts=1))
    check_complete(world, [run])
    assert {unit.order.attempt for unit in world.units} == {1}


def test_a_unit_that_is_refused_for_ever_fails_its_trial_and_does_not_spin():
    def failure_of(order):
        return NotFound("there is no architecture 'x'") if order.unit.trial_number == 1 else None

    _, world = small_world(faults=Faults(failure_of))
    serve(world)
    assert states(world) == ("finished", ["failed", "finished", "finished"])


def test_attempts_before_a_cancel_are_forgotten_at_resume():
    n_failed = Counter()

    def failure_of(order):
        n_failed[order.attempt] += 1
        return SlotLost("gone") if sum(n_failed.values()) <= 2 else None

    run = new_run(1, n_trials=1, n_partitions=2, max_epochs=1)
    world = SimulatedWorld(slots(1), [run], seconds_of=one_second, faults=Faults(failure_of))
    world.at(2.5, lambda: world.cancel_run(1))  # in the third attempt
    world.at(4.0, lambda: world.resume_run(1))
    world.at(30.0, world.stop)
    serve(world, until_idle=False)
    check_complete(world, [run])
    assert world.units[0].order.attempt == 1


def test_a_version_mismatch_ends_the_coordinator_and_blames_no_trial():
    _, world = small_world(faults=Faults(lambda order: VersionMismatch("extension 2, package 1")))
    with pytest.raises(VersionMismatch):
        serve(world)
    assert "failed" not in states(world)[1]


def test_a_lost_unit_is_tried_on_another_slot_first():
    tried = []

    def failure_of(order):
        if order.unit.trial_number == 1 and order.unit.step == 0:
            tried.append(order.slot_id)
            return SlotLost("gone") if len(tried) < 3 else None
        return None

    run, world = small_world(faults=Faults(failure_of))
    serve(world)
    check_complete(world, [run])
    assert tried[0] != tried[1] != tried[2]


def test_a_full_disk_is_waited_out_and_blames_no_trial():
    def failure_of(order):
        return OutOfSpace("could not extend file") if 3.0 <= world.now_seconds < 90.0 else None

    run, world = small_world(faults=Faults(failure_of))
    serve(world)
    check_complete(world, [run])
    assert {unit.order.attempt for unit in world.units} == {1}
    assert [kind for kind, _ in world.tables.notes] == ["disk full"]
    assert world.n_reclaims == 7, "one in each pause"
    assert min(unit.finished_seconds for unit in world.units if unit.finished_seconds >= 90.0) < 90.0 + 45.0


def test_a_full_lock_table_is_waited_out_and_blames_no_trial():
    def failure_of(order):
        return ServerBusy("out of shared memory") if 3.0 <= world.now_seconds < 300.0 else None

    run, world = small_world(faults=Faults(failure_of))
    serve(world)
    check_complete(world, [run])
    assert {unit.order.attempt for unit in world.units} == {1}
    assert [kind for kind, _ in world.tables.notes] == ["server busy"]
    assert min(unit.finished_seconds for unit in world.units if unit.finished_seconds >= 300.0) < 320.0


# Pilots and plans


def test_pilots_change_nothing_that_is_recorded():
    shape = {"n_trials": 5, "n_partitions": 3, "max_epochs": 2, "seed": 4}
    worlds = []
    for scheduler in ("auto", "longest_remaining", "random", "rotation"):
        world = SimulatedWorld(slots(2), [new_run(1, **shape, scheduler=scheduler)], seconds_of=uneven_seconds)
        serve(world)
        worlds.append(world)
    assert all(visits(world) == visits(worlds[0]) for world in worlds)
    assert worlds[0].tables.plans[0] in {(1, "longest_remaining"), (1, "rotation")}
    assert all(trial.pilot_train_seconds for trial in worlds[0].tables.run(1).trials)
    assert not any(trial.pilot_train_seconds for trial in worlds[1].tables.run(1).trials)


def test_a_partition_without_slots_holds_up_nobody_elses_pilot_and_is_met_when_slots_come():
    run = new_run(1, n_trials=3, n_partitions=2, max_epochs=1, scheduler="auto", visit_order="free", holders=[[1], [2]])
    world = SimulatedWorld([Slot(1, "a", 1)], [run], seconds_of=one_second)
    world.at(50.0, lambda: world.set_slots([Slot(1, "a", 1), Slot(2, "b", 2)]))
    serve(world)
    check_complete(world, [run])
    assert sum(unit.started_seconds < 50.0 for unit in world.units) == 3
    assert {u.order.slot_id for u in world.units if u.order.unit.partition_number == 1} == {2}


def test_a_plan_comes_close_to_the_bound_where_the_scheduler_chooses_the_partitions():
    seconds = np.random.default_rng(3).lognormal(0.0, 0.5, 40)
    holders = [[j] for j in range(1, 5)]
    for scheduler in ("auto", "vector_rearrangement"):
        run = new_run(
            1, n_trials=40, n_partitions=4, max_epochs=1, scheduler=scheduler, visit_order="free", holders=holders
        )
        world = SimulatedWorld(
            [Slot(j, f"slot-{j}", j) for j in range(1, 5)], [run],
            seconds_of=lambda unit, slot_id: float(seconds[unit.trial_number - 1]),
        )  # fmt: skip
        serve(world)
        check_complete(world, [run])
        assert world.tables.plans[-1][1] != "auto"
        makespan = max(unit.finished_seconds for unit in world.units)
        assert makespan <= 1.1 * shared_bound([3 * 4 * float(s) for s in seconds], 4)


# Placement and slots


def test_units_run_only_where_their_partition_is_held():
    holders = [[1], [2], [1, 2]]
    run = new_run(1, n_trials=5, n_partitions=3, max_epochs=2, visit_order="free", holders=holders)
    world = SimulatedWorld(
        [Slot(1, "a", 1), Slot(2, "b", 1), Slot(3, "c", 2)], [run], seconds_of=uneven_seconds, horizon_seconds=1e5
    )
    serve(world)
    check_complete(world, [run])
    segment_of = {1: 1, 2: 1, 3: 2}
    for unit in world.units:
        assert segment_of[unit.order.slot_id] in holders[unit.order.unit.partition_number]


def test_a_draining_slot_ends_its_unit_and_gets_no_more_until_it_is_active_again():
    run = new_run(1, n_trials=4, n_partitions=2, max_epochs=3)
    world = SimulatedWorld(slots(2), [run], seconds_of=one_second)
    draining = [slots(2)[0], Slot(2, "slot-2", 1, status="draining")]
    world.at(2.5, lambda: world.set_slots(draining))
    world.at(8.5, lambda: world.set_slots(slots(2)))
    serve(world)
    check_complete(world, [run])
    on_second = [unit for unit in world.units if unit.order.slot_id == 2]
    assert any(unit.started_seconds < 2.5 < unit.finished_seconds for unit in on_second)
    assert not any(2.5 < unit.started_seconds < 8.5 for unit in on_second)
    assert any(unit.started_seconds >= 8.5 for unit in on_second)
    assert {unit.order.attempt for unit in world.units} == {1}


def test_a_stuck_slot_is_given_up_its_unit_goes_on_elsewhere_and_it_comes_back():
    was_stuck = []

    def stuck_seconds(order):
        if order.slot_id == 2 and order.unit.step == 2 and not was_stuck:
            was_stuck.append(order)
            return 200.0
        return 0.0

    run = new_run(1, n_trials=3, n_partitions=2, max_epochs=30)
    world = SimulatedWorld(slots(2), [run], seconds_of=one_second, faults=Faults(stuck_seconds=stuck_seconds))
    serve(world)
    check_complete(world, [run])
    (stuck,) = was_stuck
    retried = next(u for u in world.units if (u.order.unit.trial_id, u.order.unit.step) == (stuck.unit.trial_id, 2))
    assert retried.order.slot_id == 1
    assert retried.order.attempt == 2
    assert ("slot lost", "slot 2 is given up: a unit gave no sign of life") in world.tables.notes
    on_second = sorted(u.started_seconds for u in world.units if u.order.slot_id == 2)
    assert not any(10.0 < at < 200.0 for at in on_second)
    assert on_second[-1] > 200.0


# Requests


def test_a_cancel_frees_the_slots_at_once_and_records_nothing_more():
    run, other = (new_run(i, n_trials=2, n_partitions=2, max_epochs=2) for i in (1, 2))
    world = SimulatedWorld(slots(2), [run, other], seconds_of=lambda unit, slot_id: 10.0)
    world.at(15.0, lambda: world.cancel_run(1))
    serve(world)
    assert states(world) == ("cancelled", ["cancelled"] * 2)
    assert states(world, 2) == ("finished", ["finished"] * 2)
    assert max(u.finished_seconds for u in world.units if u.order.unit.run_id == 1) == 10.0
    assert min(u.started_seconds for u in world.units if u.order.unit.run_id == 2) == 15.0


def test_cancel_and_resume_before_the_coordinator_looks_loses_only_units_under_way():
    run, world = small_world()
    world.at(3.0, lambda: (world.cancel_run(1), world.resume_run(1)))
    serve(world)
    check_complete(world, [run])


def test_a_resumed_run_is_shown_as_running():
    run, world = small_world()
    seen = []
    world.at(3.0, lambda: world.cancel_run(1))
    world.at(4.0, lambda: world.resume_run(1))
    world.at(5.0, lambda: seen.append(world.tables.run(1).status))
    world.at(90.0, world.stop)
    serve(world, until_idle=False)
    assert seen == ["running"]
    check_complete(world, [run])


def test_a_failed_run_can_be_resumed_and_its_trials_go_on():
    is_broken = [True]
    run, world = small_world(faults=Faults(lambda order: TrialFailed("bad") if is_broken[0] else None))
    serve(world)
    assert states(world) == ("failed", ["failed"] * 3)
    is_broken[0] = False
    world.resume_run(1)
    serve(world)
    check_complete(world, [run])


def test_a_dropped_run_is_forgotten():
    _, world = small_world()
    world.at(3.0, lambda: world.drop_run(1))
    serve(world)
    assert not world.units


def test_a_run_that_comes_late_fills_the_idle_slots_and_older_runs_go_first():
    run = new_run(1, n_trials=1, n_partitions=2, max_epochs=2)
    late = new_run(2, n_trials=2, n_partitions=2, max_epochs=2)
    world = SimulatedWorld(slots(2), [run], seconds_of=one_second)
    world.at(3.5, lambda: world.add_run(late))
    serve(world)
    check_complete(world, [run, late])
    assert min(u.started_seconds for u in world.units if u.order.unit.run_id == 2) == 3.5
    assert max(u.finished_seconds for u in world.units if u.order.unit.run_id == 1) == 10.0


def test_at_the_end_of_its_budget_training_is_cut_short_and_only_the_best_trial_is_tested():
    run = new_run(1, n_trials=2, n_partitions=2, max_epochs=9, max_seconds=14.0)
    other = new_run(2, n_trials=1, n_partitions=2, max_epochs=1)
    world = SimulatedWorld(slots(2), [run, other], seconds_of=lambda unit, slot_id: 3.0)
    serve(world)
    assert states(world) == ("finished", ["finished", "stopped"])
    tests = [u for u in world.units if u.order.unit.run_id == 1 and u.order.unit.kind == "test"]
    others = [u for u in world.units if u.order.unit.run_id == 1 and u.order.unit.kind != "test"]
    assert [(u.order.unit.trial_number, u.order.unit.epoch) for u in tests] == [(1, 1)] * 2
    assert max(u.finished_seconds for u in others) == 12.0  # what began then would have ended at 15
    assert all(u.started_seconds < 0.9 * 14.0 for u in others)  # a tenth is for the test
    assert states(world, 2) == ("finished", ["finished"])


def test_the_budget_counts_from_the_first_unit_and_survives_a_kill():
    run = new_run(1, n_trials=1, n_partitions=2, max_epochs=9, max_seconds=10.0)
    world = SimulatedWorld(slots(1), [run], seconds_of=one_second, warm_seconds=50.0)
    _, was_killed = serve(world, dies_at_seconds=53.5)
    assert was_killed
    serve(world)  # its session takes until 103.5 to open: the budget is over
    assert states(world) == ("finished", ["stopped"])
    assert [u.started_seconds for u in world.units] == [50.0, 51.0, 52.0]


def test_slots_that_are_taken_away_get_no_more_units_and_new_ones_do():
    run = new_run(1, n_trials=4, n_partitions=2, max_epochs=2)
    world = SimulatedWorld(slots(2), [run], seconds_of=one_second)
    world.at(2.5, lambda: world.set_slots(slots(1)))
    world.at(6.5, lambda: world.set_slots(slots(3)))
    serve(world)
    check_complete(world, [run])
    assert {u.order.slot_id for u in world.units if 2.5 < u.started_seconds < 6.5} == {1}
    assert {u.order.slot_id for u in world.units if u.started_seconds >= 6.5} == {1, 2, 3}


def test_a_stop_ends_the_loop_in_good_order_and_the_next_coordinator_goes_on():
    run, world = small_world()
    world.at(3.0, world.stop)
    serve(world, until_idle=False)
    assert states(world)[0] == "running"
    serve(world)
    check_complete(world, [run])
    assert {u.order.lease_number for u in world.units} == {1, 2}


# Kills


def test_a_kill_at_any_call_and_a_restart_record_the_same_units():
    run, world = small_world()
    process, _ = serve(world)
    undisturbed, n_calls = visits(world), process.n_calls
    for k in range(1, n_calls + 1):
        run, world = small_world()
        _, was_killed = serve(world, dies_at_call=k)
        assert was_killed
        serve(world)
        check_complete(world, [run])
        assert visits(world) == undisturbed, f"killed at call {k}"


def test_units_of_a_killed_coordinator_are_refused_under_the_new_lease():
    run = new_run(1, n_trials=1, n_partitions=1, max_epochs=1)
    world = SimulatedWorld(slots(1), [run], seconds_of=lambda unit, slot_id: 10.0)
    # The calls up to the first unit: lease, slots, open, runs, next (ready), check, beat, start_run, start, next.
    _, was_killed = serve(world, dies_at_call=10)
    assert was_killed
    assert not world.units
    serve(world)
    check_complete(world, [run])
    assert {u.order.lease_number for u in world.units} == {2}


def both_ended(first, standby, *, until_idle=True):
    """What came of two coordinators that served side by side: None or an error for each."""

    async def both():
        served = [coordinator(process).serve(until_idle=until_idle) for process in (first, standby)]
        return await asyncio.gather(*served, return_exceptions=True)

    return asyncio.run(both())


def test_a_standby_waits_for_the_lease_and_takes_over():
    run, world = small_world()
    first, standby = SimulatedProcess(world, dies_at_call=40), SimulatedProcess(world)
    died, ended = both_ended(first, standby)
    assert isinstance(died, Killed)
    assert ended is None
    assert (first.lease_number, standby.lease_number) == (1, 2)
    check_complete(world, [run])
    assert {u.order.lease_number for u in world.units} == {1, 2}


def test_a_coordinator_that_lost_its_lock_steps_down_and_harms_nothing():
    run = new_run(1, n_trials=3, n_partitions=2, max_epochs=2)
    world = SimulatedWorld(slots(2), [run], seconds_of=uneven_seconds)
    world.at(5.0, world.cut_off)
    first, standby = SimulatedProcess(world), SimulatedProcess(world)
    stepped_down, ended = both_ended(first, standby)
    assert isinstance(stepped_down, StandbyOnly)
    assert ended is None
    check_complete(world, [run])


def test_an_idle_coordinator_that_lost_its_lock_notices_at_the_next_heartbeat():
    world = SimulatedWorld(slots(1), [], seconds_of=one_second)
    first, standby = SimulatedProcess(world), SimulatedProcess(world)
    world.at(5.0, world.cut_off)
    world.at(20.0, world.stop)

    stepped_down, ended = both_ended(first, standby, until_idle=False)
    assert isinstance(stepped_down, StandbyOnly)
    assert ended is None
    assert first.n_heartbeats <= 5


# Housekeeping and speed


def test_signs_of_life_come_every_two_seconds_also_when_nothing_happens():
    run = new_run(1, n_trials=1, n_partitions=1, max_epochs=1)
    world = SimulatedWorld(slots(1), [run], seconds_of=lambda unit, slot_id: 30.0)
    process, _ = serve(world)
    assert world.now_seconds == 90.0
    assert 44 <= process.n_heartbeats <= 46


def test_space_is_reclaimed_every_so_many_bytes():
    _, world = small_world(pruned_bytes=4_000)
    serve(world)
    assert world.n_reclaims == len(world.units) // 3


def test_where_much_is_kept_space_is_reclaimed_less_often():
    settings = Settings(reclaim_bytes=10_000, reclaim_fraction=0.2)
    counts = []
    for live_bytes in (0, 50_000, 100_000, 200_000):
        _, world = small_world(pruned_bytes=4_000, live_bytes=live_bytes)
        serve(world, options=settings)
        counts.append(world.n_reclaims)
    n_units = len(world.units)
    # What is kept is known after the first vacuum.
    assert counts == [n_units // 3, n_units // 3, 1 + (n_units - 3) // 5, 1 + (n_units - 3) // 10]


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_uneven_trials_whose_times_nobody_knows_come_close_to_the_lower_bound(scale):
    ratios = [makespan_over_bound(scale * np.random.default_rng(seed).lognormal(0.0, 1.0, 24)) for seed in range(8)]
    assert np.mean(ratios) <= 1.05
    assert max(ratios) <= 1.15


def makespan_over_bound(trial_speeds):
    """Trials of one architecture on four slots and partitions; `trial_speeds` in seconds a unit."""
    run = new_run(1, n_trials=len(trial_speeds), n_partitions=4, max_epochs=2)
    world = SimulatedWorld(
        slots(4),
        [run],
        seconds_of=lambda unit, slot_id: float(trial_speeds[unit.trial_number - 1]),
        horizon_seconds=1e6,
    )
    serve(world, options=Settings(heartbeat_seconds=1e5))
    check_complete(world, [run])
    makespan = max(u.finished_seconds for u in world.units)
    return makespan / shared_bound([float(s) * n_steps_total(4, 2) for s in trial_speeds], 4)


def test_equal_trials_on_as_many_slots_reach_the_lower_bound():
    run = new_run(1, n_trials=8, n_partitions=8, max_epochs=2)
    world = SimulatedWorld(slots(8), [run], seconds_of=one_second)
    serve(world)
    assert max(u.finished_seconds for u in world.units) == n_steps_total(8, 2)


# The world itself is strict


def test_the_world_refuses_a_second_record_of_a_unit_loudly():
    run, world = small_world()
    serve(world)
    order = world.units[0].order
    world.tables.runs.add_run(run)  # the trial's progress is lost, the visit log is not
    world.tables.recorder.open_unit(order)
    with pytest.raises(BrokenRule):
        world.tables.recorder.record(order, 0.0, 1.0)


@pytest.mark.parametrize(
    ("trial", "slot_id", "fault"), [(1, 1, "runs a unit"), (0, 2, "is in a unit"), (1, 3, "not open")]
)
def test_the_world_refuses_what_no_coordinator_may_do(trial, slot_id, fault):
    run, world = small_world()
    process = SimulatedProcess(world)

    async def misbehave():
        await process.ports.executor.open(slots(2))
        assert await process.ports.inbox.next(1.0) == SlotReady(1)
        assert await process.ports.inbox.next(1.0) == SlotReady(2)
        await process.ports.executor.start(Order(unit_at(run.trials[0], 0), 0, 1, 0, 1))
        await process.ports.executor.start(Order(unit_at(run.trials[trial], 0), 0, slot_id, 0, 1))

    with pytest.raises(BrokenRule, match=fault):
        asyncio.run(misbehave())


def test_a_coordinator_that_waits_for_ever_is_found_out():
    _, world = small_world(horizon_seconds=100.0)
    world.set_slots([])
    with pytest.raises(BrokenRule, match="no end"):
        serve(world)


def test_a_trial_with_the_highest_number_is_served_without_a_row_for_each_lower_one():
    run = new_run(1, n_trials=2, n_partitions=2, max_epochs=1)
    first, last = run.trials
    run = replace(run, trials=(first, replace(last, trial_number=2**31 - 1)))
    world = SimulatedWorld([Slot(1, "slot-1", 1)], [run], seconds_of=lambda unit, slot_id: 1.0)
    process = SimulatedProcess(world, None)
    asyncio.run(Coordinator(process.ports).serve(until_idle=True))
    assert world.tables.run(1).status == "finished"


def test_one_crash_of_the_server_ends_the_trials_of_that_architecture_and_the_rest_goes_on():
    def failure_of(order):
        is_culprit = order.unit.run_id == 1 and order.unit.trial_number == 2
        return ServerCrashed("the server restarted") if is_culprit else None

    run = new_run(1, n_trials=4, n_partitions=2, max_epochs=1)
    run = replace(run, architectures={trial.trial_id: f"a{trial.trial_number % 2}" for trial in run.trials})
    other = new_run(2, n_trials=2, n_partitions=2, max_epochs=1, tenant="bob")
    world = SimulatedWorld(slots(2), [run, other], seconds_of=one_second, faults=Faults(failure_of=failure_of))
    serve(world)
    assert states(world) == ("finished", ["finished", "failed", "finished", "failed"])
    assert [kind for kind, _ in world.tables.notes].count("crashed") == 1
    assert [trial.status for trial in world.tables.run(2).trials] == ["finished"] * 2, "it was charged, too"


def test_a_crash_that_came_before_the_server_was_back_ends_its_trial():
    run = new_run(1, n_trials=2, n_partitions=1, max_epochs=1)
    run = replace(run, architectures={run.trials[0].trial_id: "mlp", run.trials[1].trial_id: "linear"})
    world = SimulatedWorld(slots(1), [run], seconds_of=one_second)
    order = Order(unit_at(run.trials[1], 0), 1, 1, 1, 1)
    carried_over = CarriedOver([UnitFailed(order, ServerCrashed("the server restarted"))], {"tenant": 2.0})
    asyncio.run(Coordinator(SimulatedProcess(world).ports, SETTINGS, carried_over).serve(until_idle=True))
    assert carried_over == CarriedOver()
    assert world.tables.charged["tenant"] >= 2.0
    assert states(world) == ("finished", ["finished", "failed"])


def test_no_unit_is_blamed_where_the_server_was_away_and_the_third_time_ends_only_its_trial():
    run = new_run(1, n_trials=2, n_partitions=1, max_epochs=1)
    run = replace(run, architectures=dict.fromkeys((trial.trial_id for trial in run.trials), "mlp"))
    world = SimulatedWorld(slots(1), [run], seconds_of=one_second)
    lost = UnitFailed(Order(unit_at(run.trials[1], 0), 1, 1, 1, 1), ServerCrashed("silent", detail="a life"))
    process = SimulatedProcess(world)
    world.at(0.1, process.die)
    with pytest.raises(Killed):
        asyncio.run(Coordinator(process.ports, SETTINGS, CarriedOver([lost, lost])).serve(until_idle=True))
    assert states(world)[1][1] != "failed"
    asyncio.run(Coordinator(SimulatedProcess(world).ports, SETTINGS, CarriedOver([lost])).serve(until_idle=True))
    assert states(world) == ("finished", ["finished", "failed"])
    assert "crashed" not in [kind for kind, _ in world.tables.notes]


def test_a_connection_that_broke_costs_an_attempt_and_no_trial():
    def failure_of(order):
        n_failed[order.unit.trial_number] += 1
        return ServerCrashed("silent", detail="a life") if n_failed[order.unit.trial_number] == 1 else None

    n_failed = Counter()
    run = new_run(1, n_trials=2, n_partitions=2, max_epochs=1)
    world = SimulatedWorld(slots(2), [run], seconds_of=one_second, faults=Faults(failure_of=failure_of))
    serve(world)
    assert states(world) == ("finished", ["finished", "finished"])
    assert [kind for kind, _ in world.tables.notes].count("retry") == 2


def test_a_crash_whose_rows_a_tenant_holds_is_recorded_before_its_trial_runs_again():
    def failure_of(order):
        if order.unit.run_id != 1 or order.unit.trial_number != 2:
            return None
        crashes.append(world.now_seconds)
        if len(crashes) == 1:
            world.tables.held.add(1)
            world.at(world.now_seconds + 7.0, lambda: world.tables.held.discard(1))
        return ServerCrashed("the server restarted")

    crashes = []
    runs = [new_run(k, n_trials=2, n_partitions=4, max_epochs=2, tenant=name) for k, name in ((1, "ann"), (2, "bob"))]
    runs[0] = replace(runs[0], architectures={trial.trial_id: f"a{trial.trial_number}" for trial in runs[0].trials})
    world = SimulatedWorld(slots(2), runs, seconds_of=one_second, faults=Faults(failure_of=failure_of))
    serve(world)
    assert len(crashes) == 1, "it crashed the server again"
    assert states(world) == ("finished", ["finished", "failed"])
    assert [trial.status for trial in world.tables.run(2).trials] == ["finished"] * 2
    assert [unit for unit in world.tables.units if unit.order.unit.run_id == 2 and unit.finished_seconds < 7.0]


def test_slot_time_of_failed_and_cancelled_units_is_charged_to_their_tenant():
    def failure_of(order):
        return TrialFailed("diverged") if order.unit.trial_number == 2 else None

    runs = [new_run(k, n_trials=2, n_partitions=1, max_epochs=3, tenant=name) for k, name in ((1, "ann"), (2, "bob"))]
    seconds = {1: 1.0, 2: 100.0}
    world = SimulatedWorld(
        slots(3), runs, seconds_of=lambda unit, slot_id: seconds[unit.run_id], faults=Faults(failure_of=failure_of)
    )
    world.at(40.0, lambda: world.drop_run(2))
    serve(world)
    assert world.tables.charged["ann"] == pytest.approx(1.0)
    assert world.tables.charged["bob"] == pytest.approx(40.0 + 39.0)  # two slots, one of them from the first second on


def test_a_run_that_is_cancelled_while_its_units_are_being_given_out_harms_no_other():
    cancelled = new_run(1, n_trials=2, n_partitions=1, max_epochs=2, architectures=("mlp", "linear"))
    other = new_run(2, n_trials=2, n_partitions=1, max_epochs=2)
    world = SimulatedWorld(slots(3), [cancelled, other], seconds_of=one_second)
    world.tables.past_arms += [PastArm(0, "classification", name, 0.5, 1.0, 1.0) for name in ("mlp", "linear")]
    open_arm, n_opened = world.tables.arms.open, Counter()

    def open_or_cancel(opening, lease_number):
        n_opened[opening.run_id] += 1
        if n_opened[1] == 2 and opening.run_id == 1:  # its first arm has been given a slot in the same turn
            world.cancel_run(1)
        return open_arm(opening, lease_number)

    world.tables.arms.open = open_or_cancel
    serve(world)
    assert n_opened[1] == 2
    assert [world.tables.run(run_id).status for run_id in (1, 2)] == ["cancelled", "finished"]


def test_what_a_failed_unit_cost_is_charged_before_the_next_sign_of_life():
    def failure_of(order):
        return TrialFailed("diverged") if order.unit.trial_number == 2 else None

    run = new_run(1, n_trials=2, n_partitions=1, max_epochs=9, tenant="ann")
    world = SimulatedWorld(slots(2), [run], seconds_of=one_second, faults=Faults(failure_of=failure_of))
    _, is_killed = serve(world, dies_at_seconds=1.5, options=replace(SETTINGS, heartbeat_seconds=100.0))
    assert is_killed
    assert world.tables.charged["ann"] == pytest.approx(1.0)


def test_units_go_on_while_many_runs_of_another_tenant_are_read():
    run = new_run(1, n_trials=1, n_partitions=1, max_epochs=50, tenant="ann")
    world = SimulatedWorld(slots(2), [run], seconds_of=one_second)
    process = SimulatedProcess(world)
    read = process.ports.runs.read

    async def read_slowly(run_id):
        """Take as long as a unit, in which time goes on for everybody."""
        until_seconds = world.time.now_seconds + 1.0
        while run_id != 1 and world.time.now_seconds < until_seconds:
            world.time._advance(until_seconds)
        return await read(run_id)

    process.ports.runs.read = read_slowly
    runs = [new_run(k, n_trials=1, n_partitions=1, max_epochs=1, tenant="bob") for k in range(2, 12)]
    world.at(9.5, lambda: [world.add_run(each) for each in runs])
    n_done = []
    for at in (9.5, 19.5):
        world.at(at, lambda: n_done.append(world.tables.run(1).trials[0].n_steps_done))
    asyncio.run(coordinator(process).serve(until_idle=True))
    assert n_done[1] - n_done[0] >= 9, n_done
