"""Batches: units of several trials of one shape that one slot does together, and the speed-up measured so far.

Trials may share a batch if their configs have the same key, which covers everything that shapes the computation. The
number of batches follows the number of slots, so that batching leaves none idle. The size of a batch is limited by the
time that its units take, because others wait for the slot that long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from easeml_db.words.training_unit import TrainingUnit

LONGEST_UNIT_SECONDS = 1.0  # of units that are worth a batch: a longer one spends its time on numbers
LONGEST_BATCH_SECONDS = 4.0  # as its units would take one after another
MOST_MEMBERS = 64
ENOUGH_BATCHES = 3  # the first of a session decodes rows and measures


def batch_width(n_trials: int, n_slots: int, unit_seconds: float | None) -> int:
    """Return the largest number of trials in the next batch; 1 while the duration of a unit is unknown."""
    if unit_seconds is None or unit_seconds > LONGEST_UNIT_SECONDS:
        return 1
    n_in_time = int(LONGEST_BATCH_SECONDS / max(unit_seconds, LONGEST_BATCH_SECONDS / MOST_MEMBERS))
    return max(1, min(math.ceil(n_trials / max(1, n_slots)), n_in_time))


def by_trial(units: Sequence[TrainingUnit]) -> Iterator[tuple[int, list[TrainingUnit]]]:
    """Yield (trial, its units), in the order in which they were given out together."""
    for trial_id, trial_units in groupby(units, lambda unit: unit.trial_id):
        yield trial_id, list(trial_units)


class BatchGains:
    """The least seconds of a training unit alone, and of one in a batch, by key."""

    def __init__(self) -> None:
        self._alone: dict[str, float] = {}
        self._together: dict[str, list[float]] = {}

    def observe(self, key: str, n_members: int, seconds: float) -> None:
        """Record how long a number of units took together."""
        if n_members == 1:
            self._alone[key] = min(seconds, self._alone.get(key, math.inf))
        else:
            self._together.setdefault(key, []).append(seconds / n_members)

    def alone_seconds(self, key: str) -> float:
        """Return the least that a unit took alone; infinity where none has run."""
        return self._alone.get(key, math.inf)

    def pays(self, key: str) -> bool:
        """Return whether a unit takes less time in a batch, or too few batches have been timed to tell."""
        together = self._together.get(key, [])
        return len(together) < ENOUGH_BATCHES or min(together) < self._alone.get(key, math.inf)
