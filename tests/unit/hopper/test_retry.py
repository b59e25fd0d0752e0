"""What follows a failure: the whole table, and what holds for every row of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.retry import (
    MAX_ATTEMPTS,
    PAUSES,
    RULES,
    Cause,
    Failure,
    GrowingPause,
    RetryDecision,
    cause_of,
    decide,
    runs_alone,
)
from easeml_db.errors import (
    ALL_ERRORS,
    EasemlError,
    InvalidData,
    NotFound,
    OutOfSpace,
    RowsHeld,
    ServerBusy,
    ServerCrashed,
    SlotLost,
    StaleLease,
    TrialFailed,
    VersionMismatch,
)

TABLE = [
    (OutOfSpace, RetryDecision(pause_all=True, requeue_after_seconds=1.0)),
    (ServerBusy, RetryDecision(pause_all=True, requeue_after_seconds=0.1)),
    (RowsHeld, RetryDecision(pause_run=True, requeue_after_seconds=0.1)),
    (StaleLease, RetryDecision(charge_attempt=True, confirm_lease=True)),
    (NotFound, RetryDecision(charge_attempt=True, confirm_lease=True)),
    (SlotLost, RetryDecision(charge_attempt=True, close_slot=True)),
    (ServerCrashed, RetryDecision(charge_attempt=True, close_slot=True, end_trial=True)),
    (TrialFailed, RetryDecision(end_trial=True)),
    (InvalidData, RetryDecision(end_trial=True)),
    (VersionMismatch, RetryDecision(end_service=True)),
]

# Whoever else is to blame, the trial is not.
INNOCENT = {Cause.DISK_FULL, Cause.SERVER_BUSY, Cause.ROWS_HELD, Cause.FAILED_MEASURED, Cause.WRONG_VERSION}
FAILURES = st.builds(Failure, st.sampled_from(Cause), st.integers(0, 10), st.integers(0, 10**6))


@pytest.mark.parametrize(("error", "decision"), TABLE)
def test_the_first_failure_of_a_unit(error, decision):
    assert decide(Failure(cause_of(error("it failed")))) == decision


@pytest.mark.parametrize(("error", "decision"), TABLE)
def test_whose_fault_it_is_does_not_depend_on_the_number_of_trials_unless_their_computation_failed(error, decision):
    of_batch = decide(Failure(cause_of(error("it failed"), is_batch=True)))
    of_pilot = decide(Failure(cause_of(error("it failed"), is_measured=True)))
    if decision.end_trial and not decision.charge_attempt:
        assert (of_batch, of_pilot) == (RetryDecision(charge_attempt=True), RetryDecision())
    else:
        assert of_batch == of_pilot == decision


def test_each_error_has_a_cause_and_each_cause_a_rule():
    assert {cause_of(error("it failed")) for error in ALL_ERRORS} == set(Cause) - {
        Cause.FAILED_IN_BATCH, Cause.FAILED_MEASURED,
    }  # fmt: skip
    assert set(RULES) == set(Cause)


@given(FAILURES)
def test_what_is_not_a_trials_fault_costs_it_nothing(failure):
    decision = decide(failure)
    if failure.cause in INNOCENT:
        assert not decision.charge_attempt
        assert not decision.end_trial
    else:
        assert decision.charge_attempt != (failure.cause is Cause.FAILED)
    assert [decision.pause_run, decision.pause_all, decision.end_service].count(True) <= 1


@given(st.lists(st.sampled_from(sorted(set(Cause) - {Cause.FAILED}, key=str)), max_size=40), st.integers(1, 5))
def test_a_trial_ends_exactly_when_its_last_attempt_has_been_charged_or_it_crashed_the_server(causes, max_attempts):
    n_attempts = 0
    for cause in causes:
        decision = decide(Failure(cause, n_attempts), max_attempts)
        n_attempts += decision.charge_attempt  # at most one for a failure
        is_last = decision.charge_attempt and n_attempts == max_attempts
        assert decision.end_trial == (is_last or cause is Cause.SERVER_CRASHED)
        if decision.end_trial:
            return
    assert n_attempts < max_attempts


@given(FAILURES)
def test_pauses_grow_up_to_a_limit_and_only_where_the_next_attempt_would_fail_alike(failure):
    rule = PAUSES.get(failure.cause)
    decision = decide(failure)
    assert (decision.requeue_after_seconds > 0) == (rule is not None) == (decision.pause_run or decision.pause_all)
    if rule is not None:
        later = decide(Failure(failure.cause, failure.n_attempts, failure.n_pauses + 1)).requeue_after_seconds
        assert rule.base_seconds <= decision.requeue_after_seconds <= later <= rule.most_seconds


@given(st.floats(0.001, 100.0), st.floats(1.0, 10.0), st.floats(1.1, 4.0), st.integers(0, 10**9))
def test_a_growing_pause_never_overflows(base, ratio, factor, n_before):
    assert base <= GrowingPause(base, base * ratio, factor).seconds(n_before) <= base * ratio


def test_only_the_last_attempt_leaves_its_gang():
    assert [runs_alone(n) for n in range(MAX_ATTEMPTS)] == [False, False, True]


@pytest.mark.parametrize("error", [SlotLost, ServerCrashed, VersionMismatch])
def test_a_member_of_a_batch_ends_neither_the_service_nor_the_slot(error: type[EasemlError]) -> None:
    """Its own state may be of another version; the other members are recorded, so slot and server are well."""
    decision = decide(Failure(cause_of(error("it failed"), is_member=True)))
    assert decision == RetryDecision(end_trial=True)
