"""Words: statuses and their transitions, and the fixed sequence of units that is a trial's life."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.errors import InvalidArgument
from easeml_db.words.tenant import Tenant
from easeml_db.words.topology import Segment, Slot
from easeml_db.words.training_unit import n_steps_total, n_units_left, next_unit, unit_at, unit_seed
from easeml_db.words.trial import (
    RUN_STATUSES,
    RUN_TRANSITIONS,
    TRIAL_STATUSES,
    TRIAL_TRANSITIONS,
    Trial,
    is_legal,
)

TRIALS = st.builds(
    Trial,
    trial_id=st.integers(1, 10**9),
    run_id=st.integers(1, 10**9),
    trial_number=st.integers(1, 50),
    n_partitions=st.integers(1, 9),
    max_epochs=st.integers(1, 5),
    n_steps_done=st.just(0),
    status=st.just("waiting"),
)
BIGINTS = st.integers(-(2**63), 2**63 - 1)


def life_of(trial):
    return [unit_at(trial, step) for step in range(n_steps_total(trial.n_partitions, trial.max_epochs))]


@pytest.mark.parametrize("transitions", [RUN_TRANSITIONS, TRIAL_TRANSITIONS])
def test_transitions_lead_to_known_states_only(transitions):
    assert set().union(*transitions.values()) <= set(transitions)


def test_what_is_final_stays():
    assert not RUN_TRANSITIONS["finished"]
    assert not TRIAL_TRANSITIONS["finished"]
    assert TRIAL_TRANSITIONS["stopped"] == {"waiting"}  # the best of a run is tested at its end


@pytest.mark.parametrize("status", ["cancelled", "failed"])
def test_what_was_cut_short_can_be_resumed(status):
    assert is_legal(RUN_TRANSITIONS, status, "queued")
    assert is_legal(TRIAL_TRANSITIONS, status, "waiting")


def test_a_running_run_is_not_queued_again_and_no_state_follows_itself():
    assert not is_legal(RUN_TRANSITIONS, "running", "queued")
    assert not any(is_legal(RUN_TRANSITIONS, status, status) for status in RUN_STATUSES)
    assert not any(is_legal(TRIAL_TRANSITIONS, status, status) for status in TRIAL_STATUSES)
    assert not is_legal(TRIAL_TRANSITIONS, "no such status", "running")


@given(TRIALS)
def test_each_epoch_trains_and_validates_every_partition_exactly_once(trial):
    for kind in ("train", "validate"):
        for epoch in range(1, trial.max_epochs + 1):
            met = [u.partition_number for u in life_of(trial) if u.kind == kind and u.epoch == epoch]
            assert sorted(met) == list(range(trial.n_partitions))


@given(TRIALS)
def test_tests_come_last_and_meet_every_partition_once(trial):
    units = life_of(trial)
    tests = units[-trial.n_partitions :]
    assert {unit.kind for unit in tests} == {"test"}
    assert sorted(unit.partition_number for unit in tests) == list(range(trial.n_partitions))
    assert "test" not in {unit.kind for unit in units[: -trial.n_partitions]}


@given(TRIALS)
def test_validation_follows_training_in_the_same_order(trial):
    p = trial.n_partitions
    units = life_of(trial)
    for start in range(0, len(units) - p, 2 * p):
        train, validate = units[start : start + p], units[start + p : start + 2 * p]
        assert {u.kind for u in train} == {"train"}
        assert {u.kind for u in validate} == {"validate"}
        assert [u.partition_number for u in train] == [u.partition_number for u in validate]
        assert train[0].partition_number == trial.trial_number % p


@given(TRIALS, st.data())
def test_units_left_are_those_that_follow(trial, data):
    units = life_of(trial)
    done = data.draw(st.integers(0, len(units)))
    later = Trial(**{**vars(trial), "n_steps_done": done})
    kinds = [unit.kind for unit in units[done:]]
    assert n_units_left(later) == {kind: kinds.count(kind) for kind in ("train", "validate", "test")}
    assert next_unit(later) == (units[done] if done < len(units) else None)


@pytest.mark.parametrize("step", [-1, 15])
def test_steps_outside_a_life_are_refused(step):
    trial = Trial(1, 1, 1, n_partitions=3, max_epochs=2, n_steps_done=0, status="waiting")
    with pytest.raises(InvalidArgument, match="steps 0 to 14"):
        unit_at(trial, step)


def test_seeds_never_change():
    """Golden values: a stored run replays only while these hold."""
    assert unit_seed(0, 1, 1, 0) == 8402967373081737104
    assert unit_seed(-7, 48, 9, 7) == 4429531144555653171


@given(BIGINTS, st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 10**4))
def test_seeds_fit_a_bigint(run_seed, trial_number, epoch, partition_number):
    assert 0 <= unit_seed(run_seed, trial_number, epoch, partition_number) < 2**63


def test_seeds_differ_between_units():
    seeds = {unit_seed(s, t, e, p) for s in range(3) for t in range(1, 9) for e in range(1, 9) for p in range(8)}
    assert len(seeds) == 3 * 8 * 8 * 8


def test_a_seed_of_more_than_64_bits_is_refused():
    with pytest.raises(InvalidArgument, match="64 bits"):
        unit_seed(2**63, 1, 1, 0)


def test_plain_words():
    assert Tenant("ada").weight == 1.0
    assert Segment(1, "here").engine == "postgres"
    assert Slot(1, "slot 1", 1).memory_limit_bytes is None
