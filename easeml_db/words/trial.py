"""A trial (one config being trained and measured), the statuses of runs and trials, and which may follow which.

A CHECK of the table of runs and a trigger on that of trials repeat these statuses; a contract test keeps all equal.
`interrupted` is not a status: a view derives it from a running run that has no live coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

Transitions = Mapping[str, frozenset[str]]

RUN_TRANSITIONS: Transitions = MappingProxyType(
    {
        "queued": frozenset({"running", "cancelled", "failed"}),
        "running": frozenset({"finished", "cancelled", "failed"}),
        "finished": frozenset(),
        "cancelled": frozenset({"queued"}),  # resume
        "failed": frozenset({"queued"}),  # resume
    }
)

TRIAL_TRANSITIONS: Transitions = MappingProxyType(
    {
        "waiting": frozenset({"running", "cancelled", "failed", "stopped"}),
        "running": frozenset({"finished", "failed", "cancelled", "stopped", "paused"}),
        "paused": frozenset({"waiting", "cancelled", "stopped"}),  # at its target, until its procedure decides
        "finished": frozenset(),
        # A procedure gave it up: final, unlike a person's cancel, unless it is the run's best at the end: it is tested.
        "stopped": frozenset({"waiting"}),
        "cancelled": frozenset({"waiting", "paused"}),  # resume
        "failed": frozenset({"waiting", "paused"}),  # resume
    }
)

OPEN_TRIAL_STATUSES = frozenset({"waiting", "running", "paused"})
RUNNABLE = frozenset({"waiting", "running"})
"""Statuses of a trial that has a unit to run; one that is paused has none."""

VISIT_ORDERS = ("cyclic", "free")

RUN_STATUSES = frozenset(RUN_TRANSITIONS)
TRIAL_STATUSES = frozenset(TRIAL_TRANSITIONS)


def is_legal(transitions: Transitions, before: str, after: str) -> bool:
    """Return whether `after` may follow `before`; keeping a status is no transition, and so not legal."""
    return after in transitions.get(before, frozenset())


@dataclass(frozen=True)
class Trial:
    """The progress of a trial: it has done the first `n_steps_done` steps of its life (see `training_unit`).

    `trial_number` counts 1..n within the run. Seeds and the cyclic visit order derive from it, never from an id, so
    that a run repeated on another server gives the same bytes. `met` holds the partitions that the trial has met in its
    present round, if the visit order is free. With `target_epochs` it pauses after that many epochs (None: max_epochs)
    until its procedure decides; trials of earlier brackets go first. A pilot gives the expected seconds of a unit.
    """

    trial_id: int
    run_id: int
    trial_number: int
    n_partitions: int
    max_epochs: int
    n_steps_done: int
    status: str
    visit_order: str = "cyclic"
    met: frozenset[int] = frozenset()
    pilot_train_seconds: float | None = None
    pilot_evaluate_seconds: float | None = None
    target_epochs: int | None = None
    bracket: int = 0

    @property
    def due_epochs(self) -> int:
        """Epochs after which it waits for a decision, or ends."""
        return self.max_epochs if self.target_epochs is None else min(self.target_epochs, self.max_epochs)
