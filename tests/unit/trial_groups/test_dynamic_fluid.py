"""DynamicFluid: when it resizes, when it leaves everything as it is, and that nobody loses by it."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from easeml_db.decisions.trial_groups.contract import Budget, DevicePlacement, RunningTrial
from easeml_db.decisions.trial_groups.device_occupancy import DeviceOccupancy
from easeml_db.decisions.trial_groups.dynamic_fluid import Resizing, dynamic_fluid
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.decisions.trial_groups.static_fluid import sized, start
from easeml_db.errors import InvalidArgument

PROFILE = Profile(1.2, 1.1, 2, 4)
EPS = Resizing(0.05)


def running_trial(trial_id, seconds, devices, width=None, **more):
    return RunningTrial(DevicePlacement(trial_id, float(width or len(devices)), devices), seconds, **more)


def running(seconds, n_devices, n_gone):
    """What still runs after StaticFluid, when so many of the placed trials have left."""
    occupancy = DeviceOccupancy(range(n_devices), PROFILE)
    start(occupancy, sized([Budget(i, each) for i, each in enumerate(seconds)], n_devices, PROFILE))
    return list(occupancy.running.values())[n_gone:]


def test_a_trial_takes_devices_that_became_free():
    (resize,) = dynamic_fluid([running_trial(1, 10, (0,))], range(4), PROFILE, EPS)
    assert resize.before.devices == (0,)
    assert (resize.after.width, resize.after.devices) == (4, (0, 1, 2, 3))


def test_packed_trials_part_when_a_device_stays_idle():
    trials = [running_trial(1, 10, (0,), 0.5), running_trial(2, 9, (0,), 0.5)]
    (resize,) = dynamic_fluid(trials, range(2), PROFILE, EPS)
    assert (resize.trial_id, resize.after.devices) == (1, (1,))


def test_devices_that_rounding_leaves_idle_go_to_the_longest():
    trials = [running_trial(1, 11, (0,)), running_trial(2, 10, (1,)), running_trial(3, 10, (2,))]
    resizes = dynamic_fluid(trials, range(8), PROFILE, EPS)
    assert {each.trial_id: each.after.width for each in resizes} == {1: 4, 2: 2, 3: 2}  # by the formula 2 each


def test_a_short_trial_gives_devices_to_a_long_one():
    trials = [running_trial(1, 20, (0,)), running_trial(2, 8, (1, 2, 3))]
    resizes = {each.trial_id: each.after for each in dynamic_fluid(trials, range(4), PROFILE, EPS)}
    assert {trial: place.width for trial, place in resizes.items()} == {
        1: 3,
        2: 1,
    }  # 8.1 and 8.1 seconds; was 20 and 3.2
    assert set(resizes[1].devices).isdisjoint(resizes[2].devices)


@pytest.mark.parametrize(
    ("resizing", "trial"),
    [
        (Resizing(inf), running_trial(1, 10, (0,))),
        (Resizing(8.0), running_trial(1, 10, (0,))),  # 10 / 4 x 1.1^3 + 8 > 10
        (Resizing(0.05, min_gain=0.7), running_trial(1, 10, (0,))),
        (EPS, running_trial(1, 10, (0,), n_reports=4.9)),
    ],
    ids=["never", "too dear", "too little gain", "resized just now"],
)
def test_nothing_is_resized_where_it_does_not_pay(resizing, trial):
    assert dynamic_fluid([trial], range(4), PROFILE, resizing) == []


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=12), st.integers(1, 8))
def test_with_as_many_devices_and_nothing_freed_nothing_changes(seconds, n_devices):
    trials = running(seconds, n_devices, 0)
    assume(len(trials) == len(seconds))  # none waits
    assert dynamic_fluid(trials, range(n_devices), PROFILE, EPS, is_freed=False) == []
    if len({device for each in trials for device in each.placement.devices}) == n_devices:
        assert dynamic_fluid(trials, range(n_devices), PROFILE, EPS) == []  # they have the widths of the formula


@given(st.lists(st.floats(0.1, 50), min_size=2, max_size=12), st.integers(1, 8), st.integers(1, 4))
def test_an_infinite_cost_never_resizes(seconds, n_devices, n_gone):
    assert dynamic_fluid(running(seconds, n_devices, n_gone), range(n_devices), PROFILE, Resizing(inf)) == []


@given(st.lists(st.floats(0.1, 50), min_size=2, max_size=12), st.integers(1, 8), st.integers(0, 4), st.integers(0, 4))
def test_resizes_fit_onto_the_devices_and_never_lengthen_the_makespan(seconds, n_devices, n_gone, n_more):
    trials, devices = running(seconds, n_devices, n_gone), range(n_devices + n_more)
    plain, resized = DeviceOccupancy(devices, PROFILE), DeviceOccupancy(devices, PROFILE)
    for occupancy in (plain, resized):
        for each in trials:
            occupancy.place(Budget(each.trial_id, each.seconds), each.placement)
    resized.resize(dynamic_fluid(trials, devices, PROFILE, EPS), EPS.seconds)  # refuses a device that is taken
    before, after = (
        max((occupancy.seconds_left(each.trial_id) for each in trials), default=0) for occupancy in (plain, resized)
    )
    assert after <= before + 1e-9


def test_a_trial_on_a_lost_device_must_be_placed_anew():
    with pytest.raises(InvalidArgument, match="device 3"):
        dynamic_fluid([running_trial(1, 10, (3,))], range(3), PROFILE, EPS)


def test_wrong_settings_are_refused():
    for wrong in ({"seconds": -1}, {"seconds": float("nan")}, {"seconds": 0, "min_gain": 1.0}):
        with pytest.raises(InvalidArgument):
            Resizing(**wrong)
    trial = running_trial(1, 10, (0,))
    with pytest.raises(InvalidArgument, match="more than once"):
        dynamic_fluid([trial, replace(trial, seconds=5)], range(3), PROFILE, EPS)
