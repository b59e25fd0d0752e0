"""The idle trials of a run as arrays, so that a decision among 10,000 trials is a few vector operations.

symbol        shape    meaning
remaining     (n,)     seconds of work that an idle trial still has; -1 for one that is not idle
is_open       (p, n)   whether an idle trial may meet a partition next
load          (p,)     seconds of work that idle trials still have on a partition
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from easeml_db.decisions.hopper.contract import Candidate, Placement
from easeml_db.errors import InvalidArgument

ABSENT = -1.0
UNKNOWN_LOAD = 1.0  # for trials that were never timed


class IdleTrials:
    """Candidates by column. Columns are given to trials as they come and never taken back."""

    def __init__(self, placement: Placement) -> None:
        self._load = [0.0] * placement.n_partitions
        self.numbers = np.zeros(0, np.int64)
        self._ranks = np.zeros(0, np.int64)
        self._has_ranks = False  # some candidate had one above 0
        self._remaining = np.zeros(0)
        self._is_open = np.zeros((placement.n_partitions, 0), bool)
        self._column_of: dict[int, int] = {}
        self._candidates: dict[int, Candidate] = {}  # by column
        self.serve(placement)

    def serve(self, placement: Placement) -> None:
        """Serve the slots of this placement from now on; its partitions are the same."""
        self.placement = placement
        self._held = {slot: _held_by(slot, placement) for slot in placement.segment_of}
        # Slots that can run a partition; where each can run all, nobody asks.
        ways = () if placement.holders is None else range(placement.n_partitions)
        self._n_able = [max(len(placement.slots_for((q,))), 1) for q in ways]

    def __len__(self) -> int:
        return len(self._candidates)

    def __contains__(self, trial_id: object) -> bool:
        return self._column_of.get(trial_id, -1) in self._candidates  # type: ignore[call-overload]

    def put(self, candidate: Candidate) -> None:
        """Mark a trial as idle, or renew what is known of it."""
        if not candidate.remaining_seconds >= 0:
            raise InvalidArgument(
                f"remaining_seconds: expected a number of at least 0, got {candidate.remaining_seconds}"
            )
        self.take(candidate.trial_id)
        column = self._column_of.setdefault(candidate.trial_id, len(self._column_of))
        if column >= len(self._remaining):
            self._grow()
        self._has_ranks = self._has_ranks or candidate.rank != 0
        self._candidates[column] = candidate
        self._remaining[column] = candidate.remaining_seconds
        self.numbers[column] = candidate.trial_number
        self._ranks[column] = candidate.rank
        self._mark(column, is_open=True)

    def take(self, trial_id: int) -> Candidate | None:
        """Remove a trial; None when it is not here."""
        column = self._column_of.get(trial_id, -1)
        if column not in self._candidates:
            return None
        self._mark(column, is_open=False)
        self._remaining[column] = ABSENT
        return self._candidates.pop(column)

    def candidate(self, column: int) -> Candidate:
        """Return the trial in a column."""
        return self._candidates[column]

    def candidates(self) -> list[Candidate]:
        """Return all idle trials."""
        return list(self._candidates.values())

    def of_lowest_rank(self, remaining: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return `remaining`, shape (n,), with -1 for those of a higher rank than the lowest that is there."""
        if not self._has_ranks:
            return remaining
        is_there = remaining >= 0
        if not is_there.any():
            return remaining
        return np.where(self._ranks == self._ranks[is_there].min(), remaining, ABSENT)

    def fitting(self, slot: int) -> npt.NDArray[np.float64]:
        """Return `remaining` of the trials that a slot could run, shape (n,); -1 for the others."""
        held = self._held[slot]
        if held is None:
            return self._remaining
        if len(held) == 1:
            return np.where(self._is_open[held[0]], self._remaining, ABSENT)
        return np.where(self._is_open[list(held)].any(axis=0), self._remaining, ABSENT)

    def fitting_most_loaded(self, slot: int) -> npt.NDArray[np.float64]:
        """Return `remaining` of the trials that a slot could run over the most loaded partition that any of them may
        meet there, shape (n,); -1 for the others."""
        held = self._held[slot]
        if held is None or len(held) < 2:
            return self.fitting(slot)
        for partition in sorted(held, key=lambda q: (-self.share(q), q)):
            remaining = np.where(self._is_open[partition], self._remaining, ABSENT)
            if remaining.max(initial=ABSENT) >= 0:
                return remaining
        return np.full(len(self._remaining), ABSENT)

    def open_on(self, candidate: Candidate, slot: int) -> list[int]:
        """Return the partitions that a trial may meet next on a slot, in the candidate's order."""
        held = self._held[slot]
        return [q for q in candidate.partition_numbers if held is None or q in held]

    def cached(self, partitions: Collection[int], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return those of these columns whose trials may meet one of these partitions next."""
        if len(partitions) == len(self._load):
            return columns
        is_cached = np.zeros(len(columns), bool)
        for partition in partitions:
            is_cached |= self._is_open[partition][columns]
        return columns[is_cached]

    def most_loaded_first(self, slots: Sequence[int]) -> list[int]:
        """Sort slots by the work that waits for them; a partition's load is shared among the slots that can run it."""
        if self.placement.holders is None or len(slots) < 2:
            return list(slots)
        shares = [self.share(partition) for partition in range(len(self._load))]
        loads = {slot: sum(shares[partition] for partition in self._held[slot] or ()) for slot in slots}
        return sorted(slots, key=lambda slot: (-round(loads[slot], 9), slot))

    def share(self, partition: int) -> float:
        """Return the seconds of work on a partition for each of the slots that can run it."""
        return self._load[partition] / self._n_able[partition]

    def _mark(self, column: int, *, is_open: bool) -> None:
        candidate = self._candidates[column]
        partitions = candidate.partition_numbers
        seconds = candidate.remaining_seconds if math.isfinite(candidate.remaining_seconds) else UNKNOWN_LOAD
        share = (1 if is_open else -1) * seconds / len(partitions)
        for partition in partitions:  # one where the visit order is cyclic
            self._is_open[partition, column] = is_open
            self._load[partition] += share

    def _grow(self) -> None:
        n, more = len(self._remaining), max(64, len(self._remaining))
        self._remaining = np.concatenate([self._remaining, np.full(more, ABSENT)])
        self.numbers = np.concatenate([self.numbers, np.zeros(more, np.int64)])
        self._ranks = np.concatenate([self._ranks, np.zeros(more, np.int64)])
        grown = np.zeros((len(self._load), n + more), bool)
        grown[:, :n] = self._is_open
        self._is_open = grown


class IdleTrialsScheduler:
    """What schedulers share that keep nothing but the idle trials."""

    def __init__(self, placement: Placement) -> None:
        self._idle = IdleTrials(placement)

    def put(self, candidate: Candidate) -> None:
        """Mark a trial as idle, or renew what is known of it."""
        self._idle.put(candidate)

    def take(self, trial_id: int) -> None:
        """Remove a trial."""
        self._idle.take(trial_id)

    def serve(self, placement: Placement) -> bool:
        """Serve other slots from now on."""
        self._idle.serve(placement)
        return True


def _held_by(slot: int, placement: Placement) -> tuple[int, ...] | None:
    """Return the partitions that a slot can run; None: all."""
    if placement.holders is None:
        return None
    return tuple(q for q, segments in enumerate(placement.holders) if placement.segment_of[slot] in segments)
