"""StaticFluid: the paper's example, both counterexamples to its theorem, and what holds for any group."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.decisions.trial_groups.contract import Budget, TrialGroup
from easeml_db.decisions.trial_groups.fluid_simulation import Filled, simulate
from easeml_db.decisions.trial_groups.optimum import optimum
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.decisions.trial_groups.static_fluid import static_fluid
from easeml_db.decisions.trial_groups.widths import widths
from easeml_db.errors import InvalidArgument


def budgets(*seconds):
    return tuple(Budget(number, each) for number, each in enumerate(seconds))


@st.composite
def profiles(draw):
    c, d, share = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.floats(0, 0.99))
    return Profile(1 + share / (c - 1) if c > 1 else 1.0, 1 + share / d, c, d)


lengths = st.lists(st.floats(0.1, 50), min_size=1, max_size=12)


def test_the_papers_example_takes_12_seconds_instead_of_30():
    filled = static_fluid(budgets(4, 4, 12, 30), range(5), Profile(c=2, d=4))
    placed = {each.trial_id: each for each in filled.placements}
    assert [placed[trial].width for trial in range(4)] == [1 / 2, 1 / 2, 1, 3]
    assert placed[0].devices == placed[1].devices
    assert [placed[trial].share for trial in (0, 3)] == [0.5, 1]
    assert filled.makespan_seconds == pytest.approx(12)
    group = TrialGroup(0, budgets(4, 4, 12, 30))
    assert simulate([group], 5, Profile(c=2, d=4), None).makespan_seconds == 30


def test_it_can_take_three_times_the_optimum():
    seconds, profile = [10.0, *[1.5] * 7], Profile(c=4, d=4)
    assert static_fluid(budgets(*seconds), range(4), profile).makespan_seconds == pytest.approx(10)
    assert optimum(seconds, 4, profile) == pytest.approx(10 / 3)


def test_where_packing_keeps_the_area_its_widths_take_twice_as_long_as_first_come_first_served():
    wanted = widths([1.0] * 5, 4, Profile(c=4, d=4))
    assert wanted == [1 / 4] * 5
    assert max(1.0 / width for width in wanted) == 4
    assert simulate([TrialGroup(0, budgets(*[1.0] * 5))], 4, Profile(), None).makespan_seconds == 2


def test_equal_trials_get_a_device_each_whatever_their_sum_rounds_to():
    assert widths([0.1] * 3, 3, Profile(c=2)) == [1.0] * 3


def test_packed_trials_join_the_least_loaded_device():
    filled = static_fluid(budgets(4, 3, 2.9, 1), range(3), Profile(c=2))
    devices = {each.trial_id: each.devices for each in filled.placements}
    assert [devices[trial] for trial in range(4)] == [(0,), (1,), (2,), (2,)]


@given(lengths, st.integers(1, 6), profiles())
def test_no_device_is_shared_by_more_than_c_and_wide_trials_have_theirs_to_themselves(seconds, n_devices, profile):
    filled = static_fluid(budgets(*seconds), range(n_devices), profile)
    on = {device: [each for each in filled.placements if device in each.devices] for device in range(n_devices)}
    for there in on.values():
        assert len(there) <= profile.c
        assert sum(each.share for each in there) <= 1 + 1e-9
        assert len(there) == 1 or all(each.is_packed for each in there) or not there
    for each in filled.placements:
        assert len(set(each.devices)) == len(each.devices) == max(each.width, 1)


@given(lengths, st.integers(1, 6), profiles())
def test_every_trial_is_placed_or_waits_and_the_longest_wait_first_in_line(seconds, n_devices, profile):
    filled = static_fluid(budgets(*seconds), range(n_devices), profile)
    placed, waiting = ({each.trial_id for each in filled.placements}, [each.budget for each in filled.waiting])
    assert placed.isdisjoint(each.trial_id for each in waiting)
    assert len(placed) + len(waiting) == len(seconds)
    assert [each.seconds for each in waiting] == sorted((each.seconds for each in waiting), reverse=True)
    if waiting:
        assert min(seconds[trial] for trial in placed) >= waiting[0].seconds
        assert sum(each.share * len(each.devices) for each in filled.placements) == pytest.approx(n_devices)


@given(lengths, st.integers(1, 6), profiles())
def test_it_says_the_makespan_of_a_simulation_without_resizes(seconds, n_devices, profile):
    group = TrialGroup(7, budgets(*seconds))
    simulated = simulate([group], n_devices, profile, Filled())
    assert static_fluid(group.budgets, range(n_devices), profile).makespan_seconds == simulated.makespan_seconds


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.1, 20), min_size=1, max_size=5), st.integers(1, 4), profiles())
def test_it_takes_at_most_twice_the_optimum_and_the_longest_packed_trial(seconds, n_devices, profile):
    makespan = static_fluid(budgets(*seconds), range(n_devices), profile).makespan_seconds
    best = optimum(seconds, n_devices, profile)
    assert best <= makespan + 1e-6
    assert makespan <= 2 * best + profile.seconds(max(seconds), profile.least_width) + 1e-6


def test_the_optimum_of_cases_done_by_hand():
    assert optimum([1.0] * 4, 2, Profile()) == pytest.approx(2)
    assert optimum([3.0], 3, Profile(d=4)) == pytest.approx(1)
    assert optimum([1.0, 1.0], 1, Profile(alpha=1.2, c=2)) == pytest.approx(1.2)
    assert optimum([2.0, 1.0], 1, Profile(alpha=1.5, c=2)) == pytest.approx(1.5 + 1)


def test_wrong_groups_are_refused():
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidArgument, match=r"budgets\[trial 1\]\.seconds"):
            Budget(1, seconds)
    with pytest.raises(InvalidArgument, match=r"groups\[1\]\.budgets: expected at least one trial"):
        TrialGroup(1, ())
    with pytest.raises(InvalidArgument, match="more than once"):
        TrialGroup(1, (Budget(1, 1.0), Budget(1, 2.0)))
    with pytest.raises(InvalidArgument, match="at least one, got none"):
        static_fluid(budgets(1), [], Profile())
    with pytest.raises(InvalidArgument, match="devices"):
        static_fluid(budgets(1), [1, 1], Profile())
    with pytest.raises(InvalidArgument, match="at most 8"):
        optimum([1.0] * 9, 2, Profile())
