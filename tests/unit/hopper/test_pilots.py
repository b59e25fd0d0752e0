"""Pilots: which trials want one, and which slot each gets."""

from dataclasses import replace

import pytest

from easeml_db.decisions.hopper.schedulers.contract import Placement
from easeml_db.decisions.hopper.schedulers.estimates import UnitSeconds
from easeml_db.decisions.hopper.schedulers.registry import MAX_SIMULATED_UNITS
from easeml_db.decisions.hopper.work.attempts import Attempts
from easeml_db.decisions.hopper.work.pilots import PilotQueue, pilots_on
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.simulated import new_run
from easeml_db.words.training_unit import PILOT

SHARED = Placement.shared([1, 2, 3], 2)


def work_of(n_trials=3, max_epochs=1):
    run = new_run(1, n_trials=n_trials, n_partitions=2, max_epochs=max_epochs)
    work = RunWork(run, UnitSeconds())
    work.trials = {trial.trial_id: trial for trial in run.trials}
    return work


def queue_of(work, exempt=()):
    queue = PilotQueue(work, lambda trial_id: work.trials[trial_id].trial_number in exempt)
    queue.restart(is_needed=True)
    return queue


def on(queue, slots=(1, 2, 3), placement=SHARED):
    return [(unit.trial_number, slot) for unit, slot in queue.on(slots, placement)]


def test_every_open_trial_has_a_pilot_until_its_times_are_known():
    work = work_of()
    queue = queue_of(work)
    assert queue.are_wanted()
    assert on(queue) == [(1, 1), (2, 2), (3, 3)]
    work.seconds.pilot(100_001, 1.0, 1.0)
    assert on(queue, slots=[2]) == [(2, 2)]
    work.trials[100_002] = replace(work.trials[100_002], n_steps_done=1)
    del work.trials[100_003]
    assert not queue.are_wanted()
    assert on(queue) == []


def test_a_trial_under_way_gets_no_second_pilot_but_its_answer_is_awaited():
    work = work_of(n_trials=1)
    queue = queue_of(work)
    work.busy[100_001] = 1
    assert on(queue) == []
    assert queue.are_wanted()


def test_arms_that_are_to_be_timed_come_before_trials_that_are_to_be_planned():
    work = work_of()
    queue = queue_of(work)
    work.timing = {100_003: work.trials[100_003]}
    assert on(queue) == [(3, 1)]


def test_exempt_trials_have_no_pilot_and_are_not_waited_for():
    work = work_of(n_trials=2)
    assert on(queue_of(work, exempt=(1,))) == [(2, 1)]
    assert not queue_of(work, exempt=(1, 2)).are_wanted()


def test_nobody_has_a_pilot_where_times_are_not_needed():
    queue = queue_of(work_of())
    queue.restart(is_needed=False)
    assert not queue.are_wanted()


@pytest.mark.parametrize("n_too_many", [0, 1])
def test_nobody_has_a_pilot_where_too_many_units_are_left_to_simulate(n_too_many):
    n_epochs = MAX_SIMULATED_UNITS // 2 + n_too_many
    assert queue_of(work_of(n_trials=1, max_epochs=n_epochs)).are_wanted() == (n_too_many == 0)


# Slots


def test_a_pilot_visits_a_partition_that_its_slot_can_run_and_is_no_step():
    bound = Placement(2, {1: 1, 2: 2, 3: 3}, (frozenset({3}), frozenset({2})))
    trials = work_of().trials.values()
    found = [(unit.trial_number, unit.kind, unit.partition_number, slot) for unit, slot in pilots_on(
        trials, [1, 2, 3], bound, Attempts())]  # fmt: skip
    assert found == [(1, PILOT, 1, 2), (2, PILOT, 0, 3)]


def test_a_lost_pilot_goes_to_another_slot_and_waits_for_one_that_is_busy():
    trials, attempts = work_of(n_trials=1).trials.values(), Attempts()
    attempts.failed(100_001, 1)
    assert [slot for _, slot in pilots_on(trials, [1, 2], SHARED, attempts)] == [2]
    assert list(pilots_on(trials, [1], SHARED, attempts)) == []
    assert [slot for _, slot in pilots_on(trials, [1], Placement.shared([1], 2), attempts)] == [1]
