"""When a run of a task starts automatically: the rule of its owner, as a pure decision."""

from __future__ import annotations


def run_reason(
    n_pending: int,
    pending_minutes: float,
    has_run: bool,
    is_wanted: bool,
    n_new_architectures: int,
    after_examples: int | None,
    after_minutes: float | None,
) -> str | None:
    """Return why a run is due, or None.

    n_pending: number of examples that differ from those of the newest version, and the minutes since. has_run: whether
    a run of the task has ended; only then can an architecture be new.
    """
    if is_wanted:
        return "by hand"
    if n_pending and after_examples is not None and n_pending >= after_examples:
        return "examples"
    if n_pending and after_minutes is not None and pending_minutes >= after_minutes:
        return "minutes"
    is_automatic = after_examples is not None or after_minutes is not None
    return "new architecture" if is_automatic and has_run and n_new_architectures else None
