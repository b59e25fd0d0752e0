"""What units are expected to take, and what no schedule can beat."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.hopper.schedulers.bounds import shared_bound, workload_bound
from easeml_db.decisions.hopper.schedulers.contract import Placement, Workload
from easeml_db.decisions.hopper.schedulers.estimates import ObservedUnit, UnitSeconds
from easeml_db.errors import InvalidArgument
from easeml_db.words.training_unit import n_steps_total, unit_at
from easeml_db.words.trial import Trial


def test_bounds():
    assert shared_bound([4.0, 1.0, 1.0], 2) == 4.0
    assert shared_bound([2.0, 2.0, 2.0], 2) == 3.0
    assert shared_bound([], 3) == 0.0
    with pytest.raises(InvalidArgument, match="n_slots"):
        shared_bound([1.0], 0)


def test_the_bound_of_a_workload_is_that_of_its_placement():
    rows = ((1.0, 2.0), (3.0, 1.0), (1.0, 1.0))
    assert workload_bound(Workload(rows, Placement.shared([1, 2], 2))) == shared_bound([3.0, 4.0, 2.0], 2) == 4.5
    assert workload_bound(Workload(rows, Placement.one_holder_each([1, 2]), n_rounds=3)) == 3 * 5.0
    replicated = Placement(2, {1: 1, 2: 2}, (frozenset({1}), frozenset({1, 2})))
    assert workload_bound(Workload(rows, replicated)) == 5.0  # only slot 1 holds partition 0
    assert workload_bound(Workload(rows, Placement.shared([1, 2], 2), speeds={1: 2.0})) == 3.0


def test_replicas_of_three_slots_leave_a_fourth_idle():
    holders = tuple(frozenset(pair) for pair in ((0, 1), (1, 2), (0, 2)))
    workload = Workload(((1.0,) * 3,) * 12, Placement(3, {slot: slot for slot in range(4)}, holders))
    assert workload_bound(workload) == pytest.approx(12.0)


def test_a_partition_without_slots_has_no_bound():
    workload = Workload(((1.0, 1.0),), Placement(2, {1: 1}, (frozenset({1}), frozenset({2}))))
    with pytest.raises(InvalidArgument, match="partition 1 has no slot"):
        workload_bound(workload)


def test_estimates_take_the_nearest_mean():
    seconds = UnitSeconds()
    assert seconds.expected(1, "mlp", "train") == 1.0
    for trial_id, architecture, observed in [
        (1, "mlp", 2.0),
        (1, "mlp", 4.0),
        (2, "mlp", 6.0),
        (3, "cnn", 8.0),
    ]:
        seconds.observe(ObservedUnit(trial_id, architecture, "train", observed))
    assert seconds.expected(1, "mlp", "train") == 3.0
    assert seconds.expected(9, "mlp", "train") == 4.0
    assert seconds.expected(9, "tree", "train") == 5.0
    assert seconds.expected(1, "mlp", "validate") == 1.0


def test_a_pilot_counts_until_a_unit_is_observed():
    seconds = UnitSeconds([ObservedUnit(2, "mlp", "train", 9.0)])
    assert not seconds.is_timed(1)
    seconds.pilot(1, 4.0, 1.0)
    assert seconds.is_timed(1)
    assert [seconds.expected(1, "mlp", kind) for kind in ("train", "validate", "test")] == [4.0, 1.0, 1.0]
    seconds.observe(ObservedUnit(1, "mlp", "train", 5.0))
    assert [seconds.expected(1, "mlp", kind) for kind in ("train", "validate")] == [5.0, 1.0]


def test_runs_share_what_is_known_of_architectures_and_not_of_trials():
    of_all = UnitSeconds()
    first, second = of_all.of_run(), of_all.of_run()
    first.observe(ObservedUnit(1, "mlp", "train", 3.0))
    second.observe(ObservedUnit(2, "mlp", "train", 5.0))
    assert [each.expected(1, "mlp", "train") for each in (first, second, of_all.of_run())] == [3.0, 4.0, 4.0]
    assert (first.is_timed(1), second.is_timed(1), of_all.is_timed(2)) == (True, False, False)


@given(st.lists(st.tuples(st.sampled_from(["train", "validate", "test"]), st.floats(0, 100)), max_size=20))
def test_remaining_seconds_are_the_sum_over_the_units_left(observed):
    seconds = UnitSeconds(ObservedUnit(1, "mlp", kind, value) for kind, value in observed)
    trial = Trial(1, 1, 3, n_partitions=3, max_epochs=2, n_steps_done=4, status="running")
    units = [unit_at(trial, step) for step in range(4, n_steps_total(3, 2))]
    total = sum(seconds.expected(1, "mlp", unit.kind) for unit in units)
    assert seconds.remaining(trial, "mlp") == pytest.approx(total)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_only_times_are_observed(value):
    with pytest.raises(InvalidArgument, match="seconds"):
        UnitSeconds([ObservedUnit(1, "mlp", "train", value)])
