"""Lower bounds of the makespan: every measured makespan is reported beside one."""

from __future__ import annotations

from collections.abc import Sequence

from easeml_db.errors import InvalidArgument


def shared_bound(trial_seconds: Sequence[float], n_slots: int) -> float:
    """Bound in seconds where every slot runs every unit at equal speed: max(longest trial, total / slots).

    `trial_seconds` holds the sum of a trial's unit times, shape (n_trials,).
    """
    if n_slots < 1:
        raise InvalidArgument(f"n_slots: expected at least 1, got {n_slots}")
    return max(max(trial_seconds, default=0.0), sum(trial_seconds) / n_slots)


def holder_bound(unit_seconds: Sequence[Sequence[float]]) -> float:
    """Bound in seconds of one epoch where each partition has one holder: the largest row or column sum.

    `unit_seconds[i][j]` is the time of trial i on the segment that holds partition j, shape (n_trials, p).
    """
    rows = [sum(row) for row in unit_seconds]
    columns = [sum(column) for column in zip(*unit_seconds, strict=True)]
    return max([*rows, *columns], default=0.0)
