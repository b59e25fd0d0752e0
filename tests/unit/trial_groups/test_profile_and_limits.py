"""Runtime by width, and the limits that measurements give."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.trial_groups.limits import packing_limit, packing_overhead, scaling_limit, scaling_overhead
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.errors import InvalidArgument


def packed(*seconds):
    """Times per iteration of 1, 2, ... trials on a device."""
    return [[each] * (place + 1) for place, each in enumerate(seconds)]


def test_runtime_follows_the_paper_on_both_sides_of_one_device():
    profile = Profile(alpha=1.2, beta=1.1, c=2, d=4)
    assert profile.seconds(10, 0.5) == pytest.approx(12)
    assert profile.seconds(10, 1) == 10
    assert profile.seconds(10, 4) == pytest.approx(10 / 4 * 1.1**3)
    assert profile.throughput == pytest.approx(2 / 1.2)


@pytest.mark.parametrize("width", [0.4, 5, 1.5, 0])
def test_a_width_that_nobody_can_have_is_refused(width):
    with pytest.raises(InvalidArgument, match="width"):
        Profile(c=2, d=4).seconds(1, width)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"alpha": 0.9}, "alpha"),
        ({"alpha": 2.0, "c": 2}, "c/\\(c-1\\)"),
        ({"beta": 1.25, "d": 4}, "1/d"),
        ({"beta": math.nan}, "beta"),
        ({"c": 0}, "c"),
        ({"d": 1.5}, "d"),
    ],
)
def test_overheads_and_limits_that_contradict_each_other_are_refused(wrong, named):
    with pytest.raises(InvalidArgument, match=named):
        Profile(**wrong)


@given(c=st.integers(1, 8), d=st.integers(1, 8), share=st.floats(0, 0.99))
def test_within_its_limits_every_further_device_makes_a_trial_shorter_and_packing_does_more(c, d, share):
    alpha = 1 + share * (1 / (c - 1)) if c > 1 else 1.0
    profile = Profile(alpha, 1 + share / d, c, d)
    seconds = [profile.seconds(1, width) for width in range(1, d + 1)]
    assert seconds == sorted(seconds, reverse=True)
    assert profile.seconds(1, profile.least_width) >= 1
    rates = [m / profile.slowdown(m) for m in range(1, c + 1)]
    assert rates == sorted(rates)


def test_packing_ends_at_the_first_trial_that_brings_too_little():
    assert packing_limit(packed(1.0, 1.0, 1.0)) == 3  # free: O^3 = 1/3
    assert packing_limit(packed(1.0, 2.0)) == 1  # in proportion: O^2 = 0
    assert packing_limit(packed(1.0, 1.2, 1.8, 1.8)) == 2  # O^3 = 0, though O^4 = 1/4
    assert packing_limit(packed(1.0, 1.2), threshold=0.5) == 1
    assert packing_limit(packed(1.0)) == 1


@given(st.lists(st.floats(1.0, 2.5), min_size=0, max_size=5), st.floats(0.01, 0.5))
def test_whatever_is_measured_the_limit_and_its_overhead_make_a_profile(factors, threshold):
    seconds = [1.0]
    for factor in factors:
        seconds.append(seconds[-1] * factor)
    c = packing_limit(packed(*seconds), threshold=threshold)
    assert Profile(packing_overhead(packed(*seconds), c), c=c).throughput >= 1


def test_a_limit_whose_overhead_is_too_large_for_it_is_lowered():
    assert packing_limit(packed(1.0, 1.79, 2.41)) == 2  # O^3 is 0.1024, but alpha would be 1.55 > 3/2


def test_memory_is_a_hard_limit():
    assert packing_limit(packed(1.0, 1.0, 1.0), trial_bytes=4, device_bytes=11) == 2
    with pytest.raises(InvalidArgument, match="does not fit"):
        packing_limit(packed(1.0), trial_bytes=12, device_bytes=11)


@pytest.mark.parametrize("threshold", [0, 1, -0.1, math.nan])
def test_a_threshold_outside_0_to_1_is_refused(threshold):
    with pytest.raises(InvalidArgument, match="threshold"):
        packing_limit(packed(1.0), threshold=threshold)


@pytest.mark.parametrize("times", [[], [[]], [[1.0], [0.0, 1.0]], [[math.nan]]])
def test_times_that_cannot_be_are_refused(times):
    with pytest.raises(InvalidArgument, match="iteration_seconds"):
        packing_limit(times)


def test_scaling_ends_where_the_speed_up_no_longer_grows():
    assert scaling_limit([1.0, 1.9, 2.7, 2.6, 5.0]) == 3
    assert scaling_limit([1.0, 0.9]) == 1
    assert scaling_limit([1.0, 2.0, 3.0]) == 3
    with pytest.raises(InvalidArgument, match="speedups"):
        scaling_limit([])


@given(st.floats(1.0, 1.9), st.floats(1.0, 1.9))
def test_what_is_measured_makes_a_profile(alpha, beta):
    times, speedups = packed(*(alpha**m for m in range(5))), [w / beta ** (w - 1) for w in range(1, 17)]
    c, d = packing_limit(times), scaling_limit(speedups)
    found = Profile(packing_overhead(times, c), scaling_overhead(speedups, d), c, d)
    assert found.c == 1 or found.alpha == pytest.approx(alpha)
    assert found.d == 1 or found.beta == pytest.approx(beta)
