"""Runs, tenants' limits and demand for slots, as the dispatcher keeps them."""

import pytest

from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.simulated import new_run
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import PILOT


def dispatcher_of(n_slots, *runs, opened=True):
    dispatcher = Dispatcher()
    dispatcher.board.keep([Slot(i, f"slot-{i}", 1) for i in range(1, n_slots + 1)])
    for slot_id in range(1, n_slots + 1):
        dispatcher.board.ready(slot_id)
    for run in runs:
        dispatcher.put_run(run)
        for arm in run.arms if opened else ():
            dispatcher.runs.open_arm(run.run_id, arm.arm_id, run.run_id)
    return dispatcher


def run_of(run_id, tenant="one", n_trials=2):
    return new_run(run_id, n_trials=n_trials, n_partitions=1, max_epochs=1, tenant=tenant)


def starts(dispatcher):
    return [(start.unit.run_id, start.slots) for start in dispatcher.next_starts()]


def test_the_run_with_the_oldest_arm_is_served_first():
    dispatcher = dispatcher_of(3, run_of(2), run_of(1))
    assert starts(dispatcher) == [(1, (1,)), (1, (2,)), (2, (3,))]
    assert starts(dispatcher) == []


def test_no_more_slots_work_for_a_tenant_than_its_limit_and_runs_that_are_gone_do_not_count():
    dispatcher = dispatcher_of(4, run_of(1, "one", 3), run_of(2, "two"))
    dispatcher.limits.set_limits({"one": 1})
    assert starts(dispatcher) == [(1, (1,)), (2, (2,)), (2, (3,))]
    assert (dispatcher.limits.n_allowed("one"), dispatcher.limits.n_allowed("two")) == (0, None)
    assert dispatcher.limits.working_for("one") == {1}
    dispatcher.drop_run(1)
    assert dispatcher.limits.n_allowed("one") == 1


def test_demand_follows_trials_slots_and_limits():
    dispatcher = dispatcher_of(4, run_of(1, "one", 3))
    assert dispatcher.demand.n_spare_slots() == 1
    dispatcher.limits.set_limits({"one": 2})
    assert dispatcher.demand.n_spare_slots() == 2
    assert dispatcher.demand.blocked_runs() == [1]
    dispatcher.limits.set_limits({})
    trial_id = next(iter(dispatcher.runs[1].work.trials))
    dispatcher.end_trial(1, trial_id)
    assert dispatcher.demand.n_spare_slots() == 2
    dispatcher.board.gone(4)
    assert dispatcher.demand.n_spare_slots() == 1
    dispatcher.runs.end_budget(1)
    assert dispatcher.demand.n_spare_slots() == 3
    dispatcher.drop_run(1)
    assert dispatcher.demand.n_spare_slots() == 3
    assert dispatcher.demand.blocked_runs() == []


def test_a_run_is_done_once_nothing_is_under_way_or_left_to_do():
    dispatcher = dispatcher_of(1, run_of(1, n_trials=1))
    assert dispatcher.runs.done() == []
    for _ in range(3):
        assert dispatcher.runs.done() == []
        (start,) = dispatcher.next_starts()
        dispatcher.recorded(start.slots[0], 1.0)
    assert dispatcher.runs.arms_to_close() == [(1, 1001)]
    assert dispatcher.runs.done() == [1]
    assert dispatcher.runs.done() == []


def test_a_unit_that_is_lost_is_offered_again_elsewhere_first():
    dispatcher = dispatcher_of(2, run_of(1, n_trials=1))
    (start,) = dispatcher.next_starts()
    dispatcher.free(start.slots[0])
    dispatcher.requeue(1, start.unit.trial_id, start.slots[0])
    assert dispatcher.n_attempts(1, start.unit.trial_id) == 1
    (again,) = dispatcher.next_starts()
    assert (again.unit, again.slots) == (start.unit, (2,))
    dispatcher.free_and_close(2)
    dispatcher.requeue(1, start.unit.trial_id, 2)
    assert list(dispatcher.board.idle()) == [1]
    assert dispatcher.n_attempts(1, start.unit.trial_id) == 2


@pytest.mark.parametrize(("scheduler", "n_choices"), [("longest_remaining", 1), ("auto", 2), ("rotation", 2)])
def test_a_scheduler_that_was_compared_or_planned_is_chosen_again_for_a_slot_that_comes(scheduler, n_choices):
    dispatcher = dispatcher_of(1)
    dispatcher.board.keep([Slot(i, f"slot-{i}", 1) for i in (1, 2)])
    dispatcher.put_run(new_run(1, n_trials=3, n_partitions=2, max_epochs=1, scheduler=scheduler))
    dispatcher.runs.open_arm(1, 1001, 1)
    while pilots := [start for start in dispatcher.next_starts() if start.unit.kind == PILOT]:
        dispatcher.piloted(pilots[0].slots[0], 1.0, 1.0)
    dispatcher.board.ready(2)
    assert [start.slots for start in dispatcher.next_starts()] == [(2,)]
    assert len(dispatcher.take_scheduler_choices()) == n_choices


def newcomer(run_id, tenant="new"):
    return new_run(run_id, n_trials=2, n_partitions=1, max_epochs=1, architectures=("mlp", "linear"), tenant=tenant)


def timed(dispatcher, *runs):
    for run in runs:
        dispatcher.put_run(run)
        dispatcher.runs.time_arms(run.run_id, [arm.arm_id for arm in run.arms])
    return dispatcher


def chosen(dispatcher):
    return [(start.unit.run_id, start.unit.kind == PILOT) for start in dispatcher.next_starts()]


def test_newcomers_are_timed_on_half_of_the_slots_while_other_tenants_want_the_rest():
    dispatcher = timed(dispatcher_of(4, run_of(1, "old", 4)), newcomer(2), newcomer(3))
    assert chosen(dispatcher) == [(2, True), (2, True), (1, False), (1, False)]
    dispatcher.piloted(1, 0.1, 0.1)
    dispatcher.recorded(3, 0.1)
    assert chosen(dispatcher) == [(3, True), (1, False)]


def test_newcomers_are_timed_on_all_slots_that_no_other_tenant_wants():
    dispatcher = timed(dispatcher_of(4, run_of(1, "old", 1)), newcomer(2), newcomer(3))
    assert chosen(dispatcher) == [(2, True), (2, True), (1, False), (3, True)]
    alone = timed(dispatcher_of(3, run_of(1, "new", 4)), newcomer(2), newcomer(3))
    assert chosen(alone) == [(2, True), (2, True), (3, True)]


def test_a_run_whose_rows_are_not_placed_leaves_idle_slots_of_other_servers_alone():
    run = run_of(1, n_trials=3)
    dispatcher = dispatcher_of(1, run)
    dispatcher.board.keep([Slot(1, "slot-1", 1), Slot(2, "slot-2", 2, service="pg_east")])
    dispatcher.board.ready(2)
    assert starts(dispatcher) == [(1, (1,))]
    assert dispatcher.take_failed() == {}
