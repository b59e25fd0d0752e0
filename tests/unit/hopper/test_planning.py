"""Which scheduler a run gets, and what is said of it."""

from dataclasses import replace

import pytest

from easeml_db.decisions.hopper.schedulers.choice import MAX_CELLS, Planning, asked_scheduler, workload_of
from easeml_db.decisions.hopper.schedulers.contract import Placement
from easeml_db.decisions.hopper.schedulers.estimates import UnitSeconds
from easeml_db.decisions.hopper.schedulers.longest_remaining import LongestRemaining
from easeml_db.decisions.hopper.schedulers.slot_orders import SlotOrderFollower
from easeml_db.simulated import new_run
from easeml_db.words.run import Search

SHARED = Placement.shared([1, 2], 2)


def run_of(scheduler="auto", **options):
    return new_run(1, **({"n_trials": 3, "n_partitions": 2, "max_epochs": 2} | options), scheduler=scheduler)


def searched(scheduler):
    return replace(run_of(scheduler), search=Search("[]", None, "hyperband"))


def trials_of(run):
    return {trial.trial_id: trial for trial in run.trials}


def planned(planning, run, placement=SHARED):
    return planning.scheduler(run, trials_of(run), UnitSeconds(), placement)


def test_a_workload_has_a_row_for_each_trial_number_and_rounds_for_the_trial_with_most_epochs_left():
    run, seconds = run_of(), UnitSeconds()
    seconds.pilot(100_001, 2.0, 1.0)
    seconds.pilot(100_003, 4.0, 0.5)
    trials = trials_of(run)
    del trials[100_002]
    workload = workload_of(run, trials, seconds, SHARED)
    assert workload.unit_seconds == ((3.0, 3.0), (0.0, 0.0), (4.5, 4.5))
    assert workload.n_rounds == 2
    trials = {t: replace(trial, n_steps_done=4) for t, trial in trials.items()}
    assert workload_of(run, trials, seconds, SHARED).n_rounds == 1
    assert workload_of(run, {}, seconds, SHARED).n_rounds == 1


def test_a_scheduler_that_is_asked_for_serves_and_is_told_once():
    planning, run = Planning(), run_of("longest_remaining")
    assert isinstance(planned(planning, run), LongestRemaining)
    choice = planning.take_choice()
    assert (choice.scheduler, choice.simulated_seconds, choice.reason) == ("longest_remaining", None, "as asked for")
    assert planning.take_choice() is None
    planned(planning, run)
    assert planning.take_choice() is None
    planning.forget()
    planned(planning, run)
    assert planning.take_choice() is not None


def test_auto_tells_what_it_compared_and_keeps_its_choice():
    planning, run = Planning(), run_of()
    planned(planning, run)
    choice = planning.take_choice()
    assert choice.scheduler == "longest_remaining"
    assert choice.simulated_seconds >= choice.bound_seconds > 0
    assert choice.reason.startswith("simulated seconds: longest_remaining ")
    assert not planning.is_as_asked(run)


def test_one_that_cannot_serve_gives_way_to_one_that_always_can():
    planning, run = Planning(), run_of("rotation")
    replicated = Placement(2, {1: 1, 2: 2}, (frozenset({1, 2}), frozenset({2})))
    assert isinstance(planned(planning, run, replicated), LongestRemaining)
    choice = planning.take_choice()
    assert choice.scheduler == "longest_remaining"
    assert choice.reason.startswith("rotation cannot serve: ")
    assert not planning.is_as_asked(run)
    planning.forget()
    assert isinstance(planned(planning, run), SlotOrderFollower)
    assert planning.is_as_asked(run)


def test_trial_numbers_that_no_plan_could_hold_are_not_planned_for():
    run, planning = run_of("rotation", n_trials=1), Planning()
    far = replace(run, trials=(replace(run.trials[0], trial_number=MAX_CELLS // 2 + 1),))
    for n_choices in (1, 0):
        assert isinstance(planned(planning, far), LongestRemaining)
        choice = planning.take_choice()
        assert (choice is not None) == (n_choices == 1)
        assert choice is None or choice.reason == "too many trials and partitions to plan for"


@pytest.mark.parametrize(
    ("asked", "given"), [("auto", "longest_remaining"), ("milp", "longest_remaining"), ("rotation", "rotation"),
    ("random", "random")])  # fmt: skip
def test_where_trials_come_and_go_none_is_served_by_a_plan_of_their_times(asked, given):
    assert asked_scheduler(searched(asked)) == given
    assert asked_scheduler(run_of(asked)) == asked
    planning = Planning()
    planned(planning, searched(asked), Placement.one_holder_each([1, 2]))
    choice = planning.take_choice()
    assert choice.scheduler == given
    assert choice.reason == ("as asked for" if asked == given else "the procedure starts and stops trials on the way")
    assert planning.is_as_asked(searched(asked))
