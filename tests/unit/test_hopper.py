"""The hopper: rules of the trade for any load, and makespans near the bound on known loads."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.errors import InvalidArgument
from easeml_db.hopper.bounds import holder_bound, shared_bound
from easeml_db.hopper.estimates import ObservedUnit, UnitSeconds
from easeml_db.hopper.longest_remaining import Assignment, Board, Candidate, choose
from easeml_db.hopper.simulation import KnownTrial, simulate
from easeml_db.training_unit import n_steps_total, unit_at
from easeml_db.trial import Trial


def known_trial(number, unit_seconds, *, n_partitions=1, run_id=1):
    """A trial with its default visit order: 2 p units an epoch and p tests, all of them timed."""
    n_epochs = (len(unit_seconds) // n_partitions - 1) // 2
    trial = Trial(100 * run_id + number, run_id, number, n_partitions, n_epochs, 0, "waiting")
    partitions = tuple(unit_at(trial, step).partition_number for step in range(len(unit_seconds)))
    return KnownTrial(trial.trial_id, run_id, number, tuple(unit_seconds), partitions)


def equal_trials(n_trials, *, n_partitions, max_epochs=1, seconds=1.0):
    n_steps = n_steps_total(n_partitions, max_epochs)
    return [known_trial(i, [seconds] * n_steps, n_partitions=n_partitions) for i in range(1, n_trials + 1)]


def uneven_trials(seed, n_trials=48, n_partitions=8):
    """Trials of lognormal speed, one epoch each."""
    speeds = np.random.default_rng(seed).lognormal(0.0, 1.0, n_trials)
    n_steps = n_steps_total(n_partitions, 1)
    return [known_trial(i + 1, [float(s)] * n_steps, n_partitions=n_partitions) for i, s in enumerate(speeds)]


def bound_of(trials, n_slots):
    return shared_bound([sum(trial.unit_seconds) for trial in trials], n_slots)


@st.composite
def loads(draw):
    p = draw(st.integers(1, 4))
    n_epochs = draw(st.integers(1, 2))
    seconds = st.lists(
        st.floats(0.125, 8.0, width=16),
        min_size=n_steps_total(p, n_epochs),
        max_size=n_steps_total(p, n_epochs),
    )
    runs = draw(st.lists(st.integers(1, 3), min_size=1, max_size=7))
    trials = [known_trial(i + 1, draw(seconds), n_partitions=p, run_id=run) for i, run in enumerate(runs)]
    return trials, draw(st.integers(1, 6))


class RandomBoard:
    """Algorithm 1 of Cerebro: any idle trial on any idle slot."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.idle = []

    def put(self, candidate):
        self.idle.append(candidate.trial_id)

    def choose(self, idle_slots, cached=None):
        n_started = min(len(self.idle), len(idle_slots))
        return [
            Assignment(self.idle.pop(int(self.rng.integers(len(self.idle)))), slot) for slot in idle_slots[:n_started]
        ]


@given(loads())
def test_every_unit_runs_once_and_in_order(load):
    trials, n_slots = load
    schedule = simulate(trials, n_slots)
    for trial in trials:
        own = [unit for unit in schedule.units if unit.trial_id == trial.trial_id]
        assert [unit.step for unit in own] == list(range(len(trial.unit_seconds)))
        assert tuple(unit.partition_number for unit in own) == trial.partition_numbers


@given(loads())
def test_neither_a_trial_nor_a_slot_is_ever_in_two_units_at_once(load):
    trials, n_slots = load
    units = simulate(trials, n_slots).units
    for key in ("trial_id", "slot_id"):
        for name in {getattr(unit, key) for unit in units}:
            own = [unit for unit in units if getattr(unit, key) == name]
            assert all(one.end_seconds <= other.start_seconds for one, other in pairwise(own))


@given(loads())
def test_no_slot_idles_while_a_trial_waits(load):
    trials, n_slots = load
    schedule = simulate(trials, n_slots)
    waits = {}
    for unit in schedule.units:
        since = waits.get(unit.trial_id, 0.0)
        if since < unit.start_seconds:
            middle = (since + unit.start_seconds) / 2
            n_busy = sum(u.start_seconds <= middle < u.end_seconds for u in schedule.units)
            assert n_busy == n_slots
        waits[unit.trial_id] = unit.end_seconds


@given(loads())
def test_makespan_lies_between_the_bound_and_grahams_guarantee(load):
    trials, n_slots = load
    makespan = simulate(trials, n_slots).makespan_seconds
    totals = [sum(trial.unit_seconds) for trial in trials]
    assert makespan >= bound_of(trials, n_slots) * (1 - 1e-9)
    assert makespan <= (sum(totals) / n_slots + max(totals) * (1 - 1 / n_slots)) * (1 + 1e-9)


@given(loads())
def test_a_schedule_depends_on_nothing_but_the_load(load):
    trials, n_slots = load
    assert simulate(trials, n_slots) == simulate(list(reversed(trials)), n_slots)


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_48_uneven_trials_on_8_slots_end_near_the_bound(seed):
    trials = uneven_trials(seed)
    assert simulate(trials, 8).makespan_seconds <= 1.02 * bound_of(trials, 8)


def test_random_order_is_worse_on_uneven_trials():
    ratios = []
    for seed in range(10):
        trials = uneven_trials(seed)
        longest = simulate(trials, 8).makespan_seconds
        ratios.append(simulate(trials, 8, RandomBoard(seed)).makespan_seconds / longest)
    assert min(ratios) >= 1.0
    assert np.mean(ratios) > 1.02


@pytest.mark.parametrize(("n_trials", "n_slots"), [(16, 16), (8, 8), (32, 8), (3, 8)])
def test_equal_trials_reach_the_bound(n_trials, n_slots):
    trials = equal_trials(n_trials, n_partitions=n_slots, max_epochs=2)
    assert simulate(trials, n_slots).makespan_seconds == bound_of(trials, n_slots)


def test_as_many_equal_trials_as_slots_rotate_so_that_each_slot_keeps_its_partition():
    schedule = simulate(equal_trials(8, n_partitions=8, max_epochs=3), 8)
    assert len({(unit.slot_id, unit.partition_number) for unit in schedule.units}) == 8
    assert sum(not unit.was_cached for unit in schedule.units) == 8


def test_a_later_run_only_fills_slots_that_the_older_leaves():
    older = [known_trial(i, [1.0] * 9, n_partitions=3, run_id=1) for i in (1, 2)]
    later = [known_trial(i, [50.0] * 9, n_partitions=3, run_id=2) for i in (1, 2, 3)]
    units = simulate([*later, *older], 2).units
    end_of_older = max(unit.end_seconds for unit in units if unit.trial_id < 200)
    assert end_of_older == 9.0
    assert min(unit.start_seconds for unit in units if unit.trial_id > 200) == 9.0


def candidate(number, seconds=1.0, *, partition=0, run_id=1):
    return Candidate(number, run_id, number, partition, seconds)


def test_most_remaining_goes_first():
    trials = [candidate(1, 2.0), candidate(2, 5.0), candidate(3, 3.0)]
    assert choose(trials, [0, 1], n_slots=4) == [Assignment(2, 0), Assignment(3, 1)]


def test_ties_go_round():
    trials = [candidate(number) for number in range(1, 5)]
    assert choose(trials, [2], n_slots=4) == [Assignment(2, 2)]
    assert choose([candidate(1), candidate(2)], [3], n_slots=4) == [Assignment(1, 3)]


def test_a_cached_partition_decides_among_equals_only():
    trials = [candidate(1, 2.0, partition=1), candidate(2, 2.0, partition=2), candidate(3, 1.0, partition=3)]
    assert choose(trials, [1], n_slots=3, cached={1: {(1, 2)}}) == [Assignment(2, 1)]
    assert choose(trials, [1], n_slots=3, cached={1: {(1, 3)}}) == [Assignment(1, 1)]
    assert choose(trials, [1], n_slots=3, cached={1: {(9, 2)}}) == [Assignment(1, 1)]


def test_among_idle_slots_a_trial_goes_where_its_partition_is_cached():
    assert choose([candidate(1, partition=4)], [0, 1, 2], n_slots=3, cached={2: {(1, 4)}}) == [Assignment(1, 2)]
    trials = [candidate(1, 9.0, partition=4), candidate(2, 1.0, partition=5)]
    swapped = choose(trials, [0, 1], n_slots=2, cached={0: {(1, 5)}, 1: {(1, 4)}})
    assert swapped == [Assignment(1, 1), Assignment(2, 0)]


@given(
    st.lists(
        st.builds(
            Candidate,
            st.integers(1, 30),
            st.integers(1, 3),
            st.integers(1, 30),
            st.integers(0, 3),
            st.integers(0, 4).map(float),
        ),
        unique_by=lambda c: c.trial_id,
    ),
    st.sets(st.integers(0, 7)),
    st.dictionaries(st.integers(0, 7), st.sets(st.tuples(st.integers(1, 3), st.integers(0, 3)))),
)
def test_a_decision_takes_the_first_trials_and_as_many_as_fit(trials, slots, cached):
    chosen = choose(trials, sorted(slots), n_slots=8, cached=cached)
    by_id = {trial.trial_id: trial for trial in trials}
    order = sorted((trial.run_id, -trial.remaining_seconds) for trial in trials)
    taken = [(by_id[one.trial_id].run_id, -by_id[one.trial_id].remaining_seconds) for one in chosen]
    assert taken == order[: len(slots)]
    assert len({one.trial_id for one in chosen}) == len(chosen) == len({one.slot_id for one in chosen})
    assert {one.slot_id for one in chosen} <= slots


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3), st.booleans()), max_size=40))
def test_a_board_knows_what_was_put_last(steps):
    board, known = Board(4), {}
    for number, seconds, is_put in steps:
        if is_put:
            known[number] = candidate(number, float(seconds), partition=seconds)
            board.put(known[number])
        else:
            assert board.take(number) == known.pop(number, None)
        assert len(board) == len(known)
        assert all(n in board for n in known)
    assert {one.trial_id for one in board.choose(range(10))} == set(known)


@pytest.mark.parametrize("seconds", [float("nan"), -1.0])
def test_remaining_work_must_be_a_number(seconds):
    with pytest.raises(InvalidArgument, match="remaining_seconds"):
        Board(1).put(candidate(1, seconds))


@pytest.mark.parametrize("decide", [Board, lambda n: simulate([], n), lambda n: shared_bound([], n)])
def test_there_must_be_a_slot(decide):
    with pytest.raises(InvalidArgument, match="n_slots"):
        decide(0)


def test_a_decision_among_10000_trials_and_1000_slots_takes_less_than_a_millisecond():
    board = Board(1000)
    rng = np.random.default_rng(0)
    for number in range(10_000):
        board.put(candidate(number, float(rng.uniform()), partition=number % 8))
    cached = {slot: {(1, slot % 8)} for slot in range(1000)}
    began = time.perf_counter()
    for slot in range(1000):
        (one,) = board.choose([slot], cached)
        board.put(candidate(one.trial_id, float(rng.uniform()), partition=slot % 8))
    assert (time.perf_counter() - began) / 1000 < 1e-3


def test_an_empty_load_takes_no_time():
    assert simulate([], 3).makespan_seconds == 0.0
    assert shared_bound([], 3) == holder_bound([]) == 0.0


def test_bounds():
    assert shared_bound([4.0, 1.0, 1.0], 2) == 4.0
    assert shared_bound([2.0, 2.0, 2.0], 2) == 3.0
    assert holder_bound([[1.0, 2.0], [3.0, 1.0]]) == 4.0
    assert holder_bound([[1.0, 5.0], [1.0, 5.0]]) == 10.0


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


@given(st.lists(st.tuples(st.sampled_from(["train", "validate", "test"]), st.floats(0, 100)), max_size=20))
def test_remaining_seconds_are_the_sum_over_the_units_left(observed):
    seconds = UnitSeconds(ObservedUnit(1, "mlp", kind, value) for kind, value in observed)
    trial = Trial(1, 1, 3, n_partitions=3, max_epochs=2, n_steps_done=4, state="running")
    units = [unit_at(trial, step) for step in range(4, n_steps_total(3, 2))]
    total = sum(seconds.expected(1, "mlp", unit.kind) for unit in units)
    assert seconds.remaining(trial, "mlp") == pytest.approx(total)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_only_times_are_observed(value):
    with pytest.raises(InvalidArgument, match="seconds"):
        UnitSeconds([ObservedUnit(1, "mlp", "train", value)])
