"""What follows when a unit fails: one table for units, members of a batch and gangs.

Whoever meets a failure describes it as a `Failure`, and carries out the `RetryDecision`. An attempt counts for the next
unit of one trial, and only if the trial may be to blame. When its last attempt has failed, the trial ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from easeml_db.errors import (
    EasemlError,
    NotFound,
    OutOfSpace,
    RowsHeld,
    ServerBusy,
    ServerCrashed,
    SlotLost,
    StaleLease,
    VersionMismatch,
)

MAX_ATTEMPTS = 3  # at one unit, or at one round of measurements


@dataclass(frozen=True)
class GrowingPause:
    """Each pause in a row is `factor` times as long as the last, up to `most_seconds`."""

    base_seconds: float
    most_seconds: float
    factor: float = 2.0

    def seconds(self, n_before: int) -> float:
        """Return the length of the next pause, after some in a row."""
        return min(self.base_seconds * self.factor ** min(n_before, 100), self.most_seconds)


ROWS_PAUSE = GrowingPause(0.1, 5.0)  # of a run whose rows another open transaction holds
DISK_PAUSE = GrowingPause(1.0, 30.0)  # of all runs, while a disk is full
BUSY_PAUSE = GrowingPause(0.1, 5.0)  # of all runs, while the server lacks locks or connections
QUESTION_PAUSE = GrowingPause(0.02, 1.0)  # of a procedure, where the rows of its trials are held
INSTANCE_PAUSE = GrowingPause(1.0, 60.0)  # of requests for instances, after one that did not come up


class Cause(Enum):
    """Why a unit is not recorded."""

    DISK_FULL = "a disk is full"
    SERVER_BUSY = "the lock table is full, or no connection is left"
    ROWS_HELD = "an open transaction holds rows of the run"
    REFUSED = "the tables are ahead of the coordinator"
    SLOT_LOST = "the slot's session is gone"
    SERVER_CRASHED = "the server crashed during it"
    FAILED_IN_BATCH = "a batch failed as a whole: nobody knows which of its trials is to blame"
    FAILED_MEASURED = "a pilot failed beside others: its trial might not fail alone"
    FAILED = "the trial's own computation failed"
    WRONG_VERSION = "extension and package differ: every unit would fail alike"


@dataclass(frozen=True)
class Failure:
    """A failure of one trial's unit. `n_attempts`: charged to this unit before; `n_pauses`: in a row for this cause."""

    cause: Cause
    n_attempts: int = 0
    n_pauses: int = 0


@dataclass(frozen=True)
class RetryDecision:
    """What to do about a failure. Where no trial or service ends, the unit is queued again once the pause is over."""

    charge_attempt: bool = False
    close_slot: bool = False  # until its session is open again
    confirm_lease: bool = False
    end_trial: bool = False
    end_service: bool = False
    pause_run: bool = False
    pause_all: bool = False
    requeue_after_seconds: float = 0.0


RULES: Mapping[Cause, RetryDecision] = {  # while attempts are left
    Cause.DISK_FULL:       RetryDecision(pause_all=True),
    Cause.SERVER_BUSY:     RetryDecision(pause_all=True),  # for as long as it lasts: no trial can do anything about it
    Cause.ROWS_HELD:       RetryDecision(pause_run=True),
    Cause.REFUSED:         RetryDecision(charge_attempt=True, confirm_lease=True),
    Cause.SLOT_LOST:       RetryDecision(charge_attempt=True, close_slot=True),
    Cause.SERVER_CRASHED:  RetryDecision(charge_attempt=True, close_slot=True, end_trial=True),  # once recorded
    Cause.FAILED_IN_BATCH: RetryDecision(charge_attempt=True),  # each runs alone next: only the culprit fails again
    Cause.FAILED_MEASURED: RetryDecision(),
    Cause.FAILED:          RetryDecision(end_trial=True),
    Cause.WRONG_VERSION:   RetryDecision(end_service=True),
}  # fmt: skip

PAUSES = {Cause.DISK_FULL: DISK_PAUSE, Cause.SERVER_BUSY: BUSY_PAUSE, Cause.ROWS_HELD: ROWS_PAUSE}

CAUSES: Mapping[type[EasemlError] | tuple[type[EasemlError], ...], Cause] = {
    OutOfSpace: Cause.DISK_FULL,
    ServerBusy: Cause.SERVER_BUSY,
    RowsHeld: Cause.ROWS_HELD,
    ServerCrashed: Cause.SERVER_CRASHED,
    SlotLost: Cause.SLOT_LOST,
    (StaleLease, NotFound): Cause.REFUSED,
    VersionMismatch: Cause.WRONG_VERSION,
}


OF_ORDERS = frozenset({Cause.SLOT_LOST, Cause.SERVER_CRASHED, Cause.WRONG_VERSION})
"""Causes that concern a whole order: a member that fails alone with such an error has failed by itself."""


def cause_of(
    error: EasemlError, *, is_batch: bool = False, is_member: bool = False, is_measured: bool = False
) -> Cause:
    """Return the cause that an error shows.

    is_batch: several trials failed with it at once. is_member: one of a batch whose other trials are recorded.
    """
    for kind, cause in CAUSES.items():
        if isinstance(error, kind):
            return Cause.FAILED if is_member and cause in OF_ORDERS else cause
    if is_measured:
        return Cause.FAILED_MEASURED
    return Cause.FAILED_IN_BATCH if is_batch else Cause.FAILED


def decide(failure: Failure, max_attempts: int = MAX_ATTEMPTS) -> RetryDecision:
    """Return what to do about a failure."""
    decision, pause = RULES[failure.cause], PAUSES.get(failure.cause)
    if decision.charge_attempt and failure.n_attempts + 1 >= max_attempts:
        return replace(decision, end_trial=True)
    return decision if pause is None else replace(decision, requeue_after_seconds=pause.seconds(failure.n_pauses))


def runs_alone(n_attempts: int) -> bool:
    """Return whether only one slot should make the next attempt: where gangs cannot work, the last goes without."""
    return n_attempts >= MAX_ATTEMPTS - 1
