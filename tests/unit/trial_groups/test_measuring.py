"""Measurements: the rounds that are asked for, what is thrown away, and the profile of a machine that is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.trial_groups.measuring import MeasuredProfile, Measuring, Round, Sample, merged
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.errors import InvalidArgument


def sample(trial, iteration_seconds, *, begin=0.0, n_iterations=20, n_rows=256, **more):
    return Sample(trial, tuple(begin + k * iteration_seconds for k in range(n_iterations + 1)), n_rows, 0.1, **more)


def measured(measuring, iteration_seconds, **more):
    """Make all measurements on a machine where an iteration takes iteration_seconds(trial, n packed, n devices)."""
    rounds = []
    while (asked := measuring.next_round()) is not None:
        rounds.append(asked)
        p, w = len(asked.trial_ids), asked.n_devices
        seconds = {trial: iteration_seconds(trial, p, w) for trial in asked.trial_ids}
        # Whoever is slower takes longer for as many iterations: they overlap as long as the fastest.
        samples = [sample(t, s, n_iterations=max(8, int(20 / s)), unit_seconds=s, **more) for t, s in seconds.items()]
        if w > 1:  # a gang does w units at once
            samples = [Sample(t, (), 0, unit_seconds=w * s) for t, s in seconds.items()]
        measuring.record(asked, samples)
    return rounds, measuring.result()


def test_pilots_run_alone_then_together_then_over_devices():
    machine = lambda trial, p, w: 0.2 * 1.2 ** (p - 1) / w * 1.1 ** (w - 1)  # noqa: E731
    rounds, found = measured(Measuring([7, 8, 9], n_slots=3, n_devices=3), machine)
    assert rounds == [
        Round((7,)), Round((8,)), Round((7, 8)), Round((9,)), Round((7, 8, 9)), Round((7,), 2), Round((7,), 3),
    ]  # fmt: skip
    assert (found.profile.alpha, found.profile.beta) == (pytest.approx(1.2), pytest.approx(1.1))
    assert (found.profile.c, found.profile.d) == (3, 3)
    assert found.eps_seconds == pytest.approx(0.1)
    assert (found.n_packed, found.n_devices, found.is_bounded) == (3, 3, False)


def test_trials_of_different_sizes_are_compared_with_themselves():
    machine = lambda trial, p, w: trial * 0.1 * 1.25 ** (p - 1)  # noqa: E731
    _, found = measured(Measuring([1, 9], n_slots=2), machine)
    assert (found.profile.c, found.profile.alpha) == (2, pytest.approx(1.25))


def test_packing_ends_where_it_brings_too_little():
    rounds, found = measured(Measuring([1, 2, 3], n_slots=3), lambda trial, p, w: 0.1 * p)
    assert rounds == [Round((1,)), Round((2,)), Round((1, 2))]
    assert found.profile == Profile()
    assert found.is_bounded
    assert found.covers(8, 1)


def test_packing_ends_where_memory_does():
    measuring = Measuring([1, 2, 3], n_slots=3, memory_bytes=1000)
    rounds, found = measured(measuring, lambda trial, p, w: 0.1, trial_bytes=400)
    assert Round((1, 2, 3)) not in rounds
    assert (found.profile.c, found.is_bounded) == (2, True)
    _, found = measured(Measuring([1, 2], n_slots=2), lambda trial, p, w: 0.1, trial_bytes=6, device_bytes=10)
    assert found.profile.c == 1


def test_scaling_ends_where_a_trial_grows_no_faster():
    rounds, found = measured(Measuring([1], n_slots=2, n_devices=5), lambda trial, p, w: 0.3 if w > 2 else 0.5 / w)
    assert [each.n_devices for each in rounds] == [1, 2, 3]
    assert found.profile.d == 2


def test_pilots_that_hardly_overlap_are_repeated_then_done_without():
    measuring = Measuring([1, 2], n_slots=2)
    for trial in (1, 2):
        measuring.record(Round((trial,)), [sample(trial, 0.1)])
    apart = [sample(1, 0.1), sample(2, 0.1, begin=1.5)]
    for _ in range(2):
        measuring.record(Round((1, 2)), apart)
        assert measuring.next_round() == Round((1, 2))
    measuring.record(Round((1, 2)), [])
    assert measuring.next_round() is None
    assert measuring.result().profile == Profile()
    assert measuring.result().measurements["n_discarded"] == 3


def test_only_iterations_while_all_train_count():
    measuring = Measuring([1, 2], n_slots=2)
    for trial in (1, 2):
        measuring.record(Round((trial,)), [sample(trial, 0.1)])
    late = Sample(1, (*(0.1 * k for k in range(11)), *(1.0 + 0.15 * k for k in range(1, 21))), 256)
    measuring.record(Round((1, 2)), [late, sample(2, 0.15, begin=1.0)])
    assert measuring.result().profile.alpha == pytest.approx(1.5)


def test_a_trial_that_cannot_be_measured_is_left_out():
    measuring = Measuring([1, 2, 3], n_slots=3)
    for _ in range(3):
        measuring.record(Round((1,)), [])
    assert measuring.next_round() == Round((2,))
    for trial in (2, 3):
        for _ in range(3):
            measuring.record(Round((trial,)), [])
    assert measuring.next_round() is None
    assert measuring.result().profile == Profile()


@given(
    st.lists(st.floats(0.05, 5.0), min_size=1, max_size=5), st.integers(1, 5), st.integers(1, 5),
    st.lists(st.floats(0.5, 3.0), min_size=60, max_size=60),
)  # fmt: skip
def test_any_machine_gives_a_profile_after_so_many_rounds(speeds, n_slots, n_devices, factors):
    trials = range(len(speeds))
    machine = lambda trial, p, w: speeds[trial] * factors[10 * p + trial] / factors[w]  # noqa: E731
    rounds, found = measured(Measuring(trials, n_slots=n_slots, n_devices=n_devices), machine)
    assert len(rounds) <= 3 * (2 * len(speeds) + n_devices)
    assert found.profile.c <= min(len(speeds), n_slots)
    assert found.profile.d <= n_devices


def test_architectures_of_one_run_get_the_more_careful_of_their_profiles():
    both = [
        MeasuredProfile(Profile(1.2, 1.1, 4, 4), 0.1, 4, 4), MeasuredProfile(Profile(1.6, 1.3, 2, 3), 0.3, 2, 4)
    ]  # fmt: skip
    assert merged(both).profile == Profile(1.6, 1.3, 2, 3)
    assert merged(both).eps_seconds == 0.3
    with pytest.raises(InvalidArgument, match="at least one"):
        merged([])


def test_nothing_to_measure_with_is_refused():
    with pytest.raises(InvalidArgument, match="at least one trial"):
        Measuring([], n_slots=1)
