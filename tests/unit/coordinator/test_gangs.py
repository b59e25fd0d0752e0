"""Gangs under the coordinator's loop in a simulated world: who waits for whom, and what failures leave behind."""

from collections import Counter

import pytest

from easeml_db.coordinator.settings import Settings
from easeml_db.errors import SlotLost, TrialFailed
from easeml_db.postgres.sessions.gang_call import Tokens, most_telling
from easeml_db.simulated import Faults, SimulatedWorld, new_run
from easeml_db.words.tenant import Tenancy, Tenant
from easeml_db.words.training_unit import n_steps_total
from tests.unit.coordinator.test_coordinator import (
    check_complete,
    one_second,
    serve,
    slots,
    states,
    uneven_seconds,
    visits,
)


def parallel_run(run_id=1, **options):
    return new_run(
        run_id, **({"n_trials": 3, "n_partitions": 4, "max_epochs": 2} | options), allocation="data_parallel"
    )


def world_of(runs, n_slots=2, seconds_of=one_second, **options):
    return SimulatedWorld(slots(n_slots), runs, seconds_of=seconds_of, **options)


def widths(world, run_id=1):
    return Counter(unit.n_slots for unit in world.units if unit.order.unit.run_id == run_id)


def test_trials_train_one_after_another_on_all_slots():
    run = parallel_run()
    world = world_of([run])
    serve(world)
    check_complete(world, [run])
    assert set(widths(world)) == {2}
    assert world.now_seconds == 3 * n_steps_total(4, 2) / 2
    numbers = [unit.order.unit.trial_number for unit in world.units]
    assert numbers == sorted(numbers)


def test_an_epoch_takes_as_few_gangs_as_its_partitions_allow_and_none_crosses_its_end():
    run = parallel_run(n_trials=1, n_partitions=5, max_epochs=1)
    world = world_of([run], n_slots=3)
    serve(world)
    check_complete(world, [run])
    assert widths(world) == {3: 9, 2: 6}


def test_slots_beyond_the_partitions_go_to_the_next_trial():
    run = parallel_run(n_trials=2, n_partitions=2, max_epochs=1)
    world = world_of([run], n_slots=4)
    serve(world)
    check_complete(world, [run])
    assert world.now_seconds == n_steps_total(2, 1) / 2


def test_auto_hops_while_trials_fill_the_slots_and_gangs_up_for_the_last_ones():
    # The long trial has a slot of its own. With rotation all others would wait for it at every turn, and whether it is
    # among the last ones at the end would depend on which of several answers of one instant comes first.
    run = new_run(1, n_trials=5, n_partitions=4, max_epochs=2, allocation="auto", scheduler="longest_remaining")
    world = world_of([run], n_slots=4, seconds_of=lambda unit, slot_id: 20.0 if unit.trial_number == 1 else 1.0)
    serve(world)
    check_complete(world, [run])
    assert set(widths(world)) >= {1, 4}
    ends = {}
    for unit in world.units:
        ends[unit.order.unit.trial_id] = unit.finished_seconds
    third_last = sorted(ends.values())[2]
    assert all(unit.started_seconds >= third_last for unit in world.units if unit.n_slots > 1)


@pytest.mark.parametrize(("allocation", "n_joint_epochs"), [("auto", 3), ("data_parallel", 6)])
def test_auto_hops_where_its_gangs_have_shown_that_they_do_less(allocation, n_joint_epochs):
    run = new_run(1, n_trials=1, n_partitions=4, max_epochs=6, allocation=allocation, scheduler="auto")
    world = world_of([run], n_slots=4, seconds_of=lambda unit, slot_id: 1.0 if slot_id == 1 else 20.0)
    serve(world)
    check_complete(world, [run])
    joint = {unit.order.unit.epoch for unit in world.units if unit.n_slots > 1 and unit.order.unit.kind == "train"}
    assert joint == set(range(1, n_joint_epochs + 1))


def test_auto_counts_the_trials_of_arms_that_are_still_to_come():
    run = new_run(
        1, n_trials=4, n_partitions=2, max_epochs=1, allocation="auto", architectures=("mlp", "linear", "cnn", "tree")
    )
    world = world_of([run])
    serve(world)
    check_complete(world, [run])
    assert [unit.n_slots for unit in world.units][:4] == [1] * 4


def test_trials_that_cannot_train_jointly_hop():
    run = parallel_run(n_trials=4, architectures=("mlp", "tree"), joint_architectures=("mlp",))
    world = world_of([run])
    serve(world)
    check_complete(world, [run])
    for unit in world.units:
        assert unit.n_slots == (2 if run.architectures[unit.order.unit.trial_id] == "mlp" else 1)


def test_a_younger_gang_waits_for_units_under_way_and_gets_slots_before_those_that_come_later():
    hopping = new_run(1, n_trials=2, n_partitions=2, max_epochs=1)
    gang = parallel_run(2, n_trials=1, n_partitions=2, max_epochs=1)
    late = new_run(3, n_trials=2, n_partitions=2, max_epochs=1)
    world = world_of([hopping], n_slots=3, seconds_of=uneven_seconds)
    world.at(1.0, lambda: world.add_run(gang))
    world.at(1.0, lambda: world.add_run(late))
    serve(world)
    check_complete(world, [hopping, gang, late])


def test_a_run_that_is_older_keeps_its_slots_while_a_gang_uses_the_others():
    hopping = new_run(1, n_trials=1, n_partitions=2, max_epochs=20)
    gang = parallel_run(2, n_trials=1, n_partitions=2, max_epochs=2)
    world = world_of([hopping], n_slots=3, seconds_of=uneven_seconds)
    world.at(1.0, lambda: world.add_run(gang))
    serve(world)
    check_complete(world, [hopping, gang])
    assert set(widths(world, 2)) == {2}


@pytest.mark.parametrize("max_slots", [1, 2, 3])
def test_a_gang_is_no_wider_than_its_tenant_may_have(max_slots):
    runs = [parallel_run(n_partitions=3, n_trials=2), new_run(2, n_trials=3, n_partitions=3, max_epochs=2)]
    world = world_of(runs, n_slots=4, seconds_of=uneven_seconds)
    world.tables.tenancy = Tenancy(tenants={"tenant": Tenant("tenant", max_slots=max_slots)})
    serve(world)
    check_complete(world, runs)
    assert max(widths(world)) == max_slots
    moments = {unit.started_seconds for unit in world.units}
    assert max(sum(u.started_seconds <= at < u.finished_seconds for u in world.units) for at in moments) == max_slots


def test_the_width_follows_the_slots_in_service():
    run = parallel_run(n_trials=1, n_partitions=4, max_epochs=6)
    world = world_of([run], n_slots=2)
    world.at(6.5, lambda: world.set_slots(slots(4)))
    world.at(12.5, lambda: world.set_slots(slots(1)))
    serve(world)
    check_complete(world, [run])
    assert set(widths(world)) == {1, 2, 4}


# What goes wrong


def test_a_lost_rank_costs_one_attempt_of_the_whole_gang():
    lost = []

    def failure_of(order):
        if order.slot_id == 2 and order.unit.step == 5 and not lost:
            lost.append(order)
            return SlotLost("gone")
        return None

    run = parallel_run()
    world = world_of([run], faults=Faults(failure_of), warm_seconds=0.5)
    serve(world)
    check_complete(world, [run])
    assert [kind for kind, _ in world.tables.notes] == ["retry"]
    assert {unit.order.attempt for unit in world.units} == {1, 2}


def test_a_rank_whose_answer_is_lost_leaves_the_gang_recorded_once():
    run = parallel_run()
    world = world_of([run], faults=Faults(is_answer_lost=lambda order: order.slot_id == 2))
    serve(world, options=Settings(max_attempts=1))
    check_complete(world, [run])
    assert {unit.order.attempt for unit in world.units} == {1}


def test_where_gangs_never_work_a_trial_goes_on_alone():
    run = parallel_run()
    world = world_of([run], faults=Faults(lambda order: SlotLost("no exchange") if order.attempt < 3 else None))
    serve(world)
    check_complete(world, [run])
    assert set(widths(world)) == {1}


def test_a_failing_rank_fails_its_trial_and_no_other():
    def failure_of(order):
        return TrialFailed("loss is nan") if order.unit.trial_number == 2 and order.slot_id == 2 else None

    world = world_of([parallel_run()], faults=Faults(failure_of))
    serve(world)
    assert states(world) == ("finished", ["finished", "failed", "finished"])


def test_of_a_gang_with_a_stuck_rank_only_that_slot_is_given_up():
    was_stuck = []

    def stuck_seconds(order):
        if order.slot_id == 2 and order.unit.step > 4 and not was_stuck:
            was_stuck.append(order)
            return 200.0
        return 0.0

    run = parallel_run(n_trials=2, max_epochs=30)
    world = world_of([run], n_slots=3, faults=Faults(stuck_seconds=stuck_seconds))
    serve(world)
    check_complete(world, [run])
    assert [kind for kind, _ in world.tables.notes] == ["slot lost", "retry"]
    while_stuck = {u.order.slot_id for u in world.units if 63.0 < u.started_seconds < 200.0}
    assert while_stuck == {1, 3}
    assert any(unit.order.slot_id == 2 and unit.started_seconds > 200.0 for unit in world.units)


def test_a_kill_at_any_call_during_gangs_and_a_restart_record_the_same_units():
    def world():
        return world_of([parallel_run(n_trials=2, n_partitions=3, max_epochs=1)], seconds_of=uneven_seconds)

    undisturbed = world()
    process, _ = serve(undisturbed)
    for k in range(1, process.n_calls + 1):
        disturbed = world()
        _, was_killed = serve(disturbed, dies_at_call=k)
        assert was_killed
        serve(disturbed)
        check_complete(disturbed, [disturbed.tables.run(1)])
        assert visits(disturbed) == visits(undisturbed), f"killed at call {k}"


def test_a_cancel_ends_a_gang_and_frees_all_its_slots():
    run, other = parallel_run(), new_run(2, n_trials=2, n_partitions=2, max_epochs=1)
    world = world_of([run, other], seconds_of=lambda unit, slot_id: 10.0)
    world.at(15.0, lambda: world.cancel_run(1))
    serve(world)
    assert states(world) == ("cancelled", ["cancelled"] * 3)
    assert states(world, 2) == ("finished", ["finished"] * 2)
    assert min(u.started_seconds for u in world.units if u.order.unit.run_id == 2) == 15.0


# What the executor keeps of a gang


def test_a_token_lasts_until_a_session_is_gone_or_a_gang_has_failed():
    tokens = Tokens()
    both, other = tokens.of((1, 2)), tokens.of((2, 1))
    assert len({both, other, tokens.of((3, 4))}) == 3
    assert tokens.of((1, 2)) == both
    tokens.forget((1, 2))
    assert tokens.of((1, 2)) != both
    assert tokens.of((2, 1)) == other
    apart = tokens.of((3, 4))
    tokens.session_gone(2)
    assert tokens.of((2, 1)) != other
    assert tokens.of((3, 4)) == apart


def test_a_session_that_keeps_many_broken_groups_is_worn_out():
    tokens = Tokens()
    for _ in range(64):
        assert tokens.worn_out((1, 2)) == []
        tokens.of((1, 2))
        tokens.forget((1, 2))
    assert tokens.worn_out((1, 2)) == [1, 2]
    tokens.session_gone(1)
    assert tokens.worn_out((1, 2)) == [2]


def test_the_error_that_explains_most_is_told():
    follower, lost, own = SlotLost("a peer is gone", detail="closed"), SlotLost("terminated"), TrialFailed("nan")
    assert most_telling([follower, lost, own]) is own
    assert most_telling([follower, lost]) is lost
    assert most_telling([follower]) is follower
    assert most_telling([]) is None
