"""Idle trials by the partitions that they may meet next, as arrays, so that choosing among 10,000 is a few vector
operations.

If each partition kept a sorted order of its own, every unit would have to move its trial in as many orders as it has
partitions left, which may be a thousand.

symbol        shape    meaning
is_open       (p, n)   whether the trial of a column is idle and may meet a partition next
keys          (3, n)   rank, lead, and minus the seconds that are left, the smallest first
numbers       (n,)     trial numbers, for the rotation
"""

from __future__ import annotations

import numpy as np

from easeml_db.decisions.hopper.schedulers.contract import Candidate

N_COLUMNS_AT_FIRST = 64


class TrialsByPartition:
    """Candidates by column. A trial's column is the order of its arrival, from 0."""

    def __init__(self, n_partitions: int) -> None:
        self._is_open = np.zeros((n_partitions, N_COLUMNS_AT_FIRST), bool)
        self._keys = np.zeros((3, N_COLUMNS_AT_FIRST))
        self._numbers = np.zeros(N_COLUMNS_AT_FIRST, np.int64)
        self._candidates: dict[int, Candidate] = {}  # by column

    def add(self, order: int, candidate: Candidate) -> None:
        """Add a trial."""
        if order >= len(self._numbers):
            self._grow(order + 1)
        self._candidates[order] = candidate
        self._is_open[list(candidate.partition_numbers), order] = True
        self._keys[:, order] = candidate.rank, candidate.lead, -candidate.remaining_seconds
        self._numbers[order] = candidate.trial_number

    def remove(self, order: int) -> None:
        """Remove a trial."""
        del self._candidates[order]
        self._is_open[:, order] = False

    def first(self, partition: int, slot_turn: int, n_slots: int) -> Candidate | None:
        """Return the trial whose turn is next on a slot of n, among those that may meet a partition next."""
        able = np.flatnonzero(self._is_open[partition])
        if not len(able):
            return None
        for key in self._keys:
            values = key[able]
            able = able[values == values.min()]
        return self._candidates[int(able[((self._numbers[able] - slot_turn) % n_slots).argmin()])]

    def _grow(self, n_needed: int) -> None:
        more = max(n_needed, 2 * len(self._numbers)) - len(self._numbers)
        self._is_open = np.pad(self._is_open, ((0, 0), (0, more)))
        self._keys = np.pad(self._keys, ((0, 0), (0, more)))
        self._numbers = np.pad(self._numbers, (0, more))
