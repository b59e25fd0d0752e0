"""The idle trials of a run as arrays, so that drawing one of 10,000 takes a few vector operations.

symbol        shape    meaning
is_idle       (n,)     whether the trial of a column is idle
is_open       (p, n)   whether an idle trial may meet a partition next
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from easeml_db.decisions.hopper.schedulers.contract import Candidate, Placement


class IdleTrials:
    """Candidates by column. Columns are given to trials as they come and never taken back."""

    def __init__(self, placement: Placement) -> None:
        self._is_idle = np.zeros(0, bool)
        self._is_open = np.zeros((placement.n_partitions, 0), bool)
        self._column_of: dict[int, int] = {}
        self._candidates: dict[int, Candidate] = {}  # by column
        self.serve(placement)

    def serve(self, placement: Placement) -> None:
        """Serve the slots of this placement from now on; its partitions are the same."""
        self.placement = placement
        self._held = {slot: _held_by(slot, placement) for slot in placement.segment_of}

    def __len__(self) -> int:
        return len(self._candidates)

    def put(self, candidate: Candidate) -> None:
        """Mark a trial as idle, or update it."""
        self.take(candidate.trial_id)
        column = self._column_of.setdefault(candidate.trial_id, len(self._column_of))
        if column >= len(self._is_idle):
            self._grow()
        self._candidates[column] = candidate
        self._is_idle[column] = True
        self._is_open[list(candidate.partition_numbers), column] = True

    def take(self, trial_id: int) -> None:
        """Remove a trial."""
        column = self._column_of.get(trial_id, -1)
        if column in self._candidates:
            del self._candidates[column]
            self._is_idle[column] = False
            self._is_open[:, column] = False

    def candidate(self, column: int) -> Candidate:
        """Return the trial in a column."""
        return self._candidates[column]

    def fitting(self, slot: int) -> npt.NDArray[np.int64]:
        """Return the columns of the trials that a slot could run."""
        held = self._held[slot]
        return np.flatnonzero(self._is_idle if held is None else self._is_open[held].any(axis=0))

    def open_on(self, candidate: Candidate, slot: int) -> list[int]:
        """Return the partitions that a trial may meet next on a slot, in the candidate's order."""
        held = self._held[slot]
        return [q for q in candidate.partition_numbers if held is None or q in held]

    def _grow(self) -> None:
        more = max(64, len(self._is_idle))
        self._is_idle = np.concatenate([self._is_idle, np.zeros(more, bool)])
        self._is_open = np.concatenate([self._is_open, np.zeros((len(self._is_open), more), bool)], axis=1)


def _held_by(slot: int, placement: Placement) -> list[int] | None:
    """Return the partitions that a slot can run; None: all."""
    if placement.holders is None:
        return None
    return [q for q, segments in enumerate(placement.holders) if placement.segment_of[slot] in segments]
