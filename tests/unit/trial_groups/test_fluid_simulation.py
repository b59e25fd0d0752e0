"""Jobs of groups in simulation: order, barriers, what packing and resizing cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.trial_groups.contract import Budget, TrialGroup
from easeml_db.decisions.trial_groups.dynamic_fluid import Resizing
from easeml_db.decisions.trial_groups.fluid_simulation import Filled, simulate
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.errors import InvalidArgument
from easeml_experiments.fluid.workload import PROCEDURES, Speeds, brackets

PROFILE = Profile(1.2, 1.1, 2, 4)


def group(number, *seconds, **more):
    return TrialGroup(number, tuple(Budget(trial, each) for trial, each in enumerate(seconds)), **more)


def times(outcome, what):
    return {(each.group_id, each.trial_id): each.seconds for each in outcome.events if each.what == what}


def test_without_water_filling_trials_start_in_order_one_on_each_device():
    outcome = simulate([group(0, 1, 5, 2)], 2, PROFILE, None)
    assert times(outcome, "start") == {(0, 0): 0, (0, 1): 0, (0, 2): 1}
    assert (outcome.makespan_seconds, outcome.work_seconds, outcome.busy_seconds) == (5, 8, 8)
    assert outcome.busy_share == 0.8
    assert outcome.utilisation(PROFILE) == pytest.approx(0.8 * 0.6)


def test_a_packed_trial_is_slowed_only_while_it_is_not_alone():
    outcome = simulate([group(0, 1, 2)], 1, PROFILE, Filled())
    assert times(outcome, "end") == {(0, 0): pytest.approx(1.2), (0, 1): pytest.approx(2.2)}


def test_a_group_waits_for_those_before_it_and_urgent_ones_go_first():
    job = [group(0, 1), group(1, 1, 1, priority=-1), group(2, 1, after=frozenset({0}))]
    starts = times(simulate(job, 1, Profile(), None), "start")
    assert starts == {(0, 0): 0, (2, 0): 1, (1, 0): 2, (1, 1): 3}


def test_a_resized_trial_stands_still_and_is_then_faster():
    job, profile = [group(0, 1.0, 3.0)], Profile(d=2)
    outcome = simulate(job, 2, profile, Filled(Resizing(0.5), 0.1))
    assert outcome.n_resizes == 1
    assert outcome.makespan_seconds == pytest.approx(1 + 0.5 + 2 / 2)
    assert simulate(job, 2, profile, Filled()).makespan_seconds == 3


@given(st.lists(st.lists(st.floats(0.1, 20), min_size=1, max_size=6), min_size=1, max_size=4), st.integers(1, 5))
def test_everything_is_trained_once_and_no_device_is_busier_than_it_can_be(lengths, n_devices):
    job = [group(i, *seconds, after=frozenset(range(i)[-1:])) for i, seconds in enumerate(lengths)]
    for filled in (None, Filled(), Filled(Resizing(0.05), 0.1)):
        outcome = simulate(job, n_devices, PROFILE, filled)
        assert len(times(outcome, "start")) == len(times(outcome, "end")) == sum(map(len, lengths))
        assert 0 < outcome.utilisation(PROFILE) <= 1 + 1e-9
        assert outcome.busy_share <= 1 + 1e-9


@pytest.mark.parametrize(
    ("job", "named"),
    [
        ([group(0, 1), group(0, 1)], "more than once"),
        ([group(0, 1, after=frozenset({1})), group(1, 1)], "not listed before"),
        ([group(0, 1, after=frozenset({0}))], "not listed before"),
    ],
)
def test_a_job_that_cannot_run_is_refused(job, named):
    with pytest.raises(InvalidArgument, match=named):
        simulate(job, 1, PROFILE, None)


def test_no_devices_are_refused():
    with pytest.raises(InvalidArgument, match="n_devices"):
        simulate([group(0, 1)], 0, PROFILE, None)


def test_brackets_are_those_of_hyperband():
    assert brackets() == [
        [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
        [(34, 3), (11, 9), (3, 27), (1, 81)],
        [(15, 9), (5, 27), (1, 81)],
        [(8, 27), (2, 81)],
        [(5, 81)],
    ]
    assert [rungs[0][0] for rungs in brackets(25)] == [9, 5, 3]
    assert brackets(243)[0][0] == (243, 1)


@pytest.mark.parametrize("name", PROCEDURES)
def test_a_seed_draws_the_same_job(name):
    import numpy as np

    one, other = (PROCEDURES[name](Speeds(np.random.default_rng(3))) for _ in range(2))
    assert one == other
