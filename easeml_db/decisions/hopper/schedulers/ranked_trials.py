"""Idle trials in the order in which longest remaining takes them, so that a decision examines only the first ones.

Trials of the same rank and lead that have the same seconds left are tied. Of timed trials nearly each is alone; trials
that were never timed are all tied. Among tied ones rotation decides: the smallest (i - j) mod n for trial number i,
slot j and n slots, which is the first one at or after j where trials are sorted by i mod n.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator

from easeml_db.decisions.hopper.schedulers.contract import Candidate

Turn = tuple[int, int]  # trial number mod n slots, order of arrival
Place = tuple[int, int, float]  # rank, lead, what is left


class TiedTrials:
    """Trials that are tied except for their turn in the rotation, by order of arrival."""

    __slots__ = ("_candidates", "_n_slots", "_turns")

    def __init__(self) -> None:
        self._candidates: dict[int, Candidate] = {}
        self._turns: dict[int | None, list[Turn]] = {}  # by next partition (None: any), filled on demand
        self._n_slots = 1

    def __bool__(self) -> bool:
        return bool(self._candidates)

    def add(self, order: int, candidate: Candidate) -> None:
        """Add a trial."""
        self._candidates[order] = candidate
        for turns in self._turns_with(candidate):
            insort(turns, self._turn(order))

    def remove(self, order: int) -> None:
        """Remove a trial."""
        for turns in self._turns_with(self._candidates[order]):
            del turns[bisect_left(turns, self._turn(order))]
        del self._candidates[order]

    def first(self, slot_turn: int, n_slots: int, partitions: Collection[int] = ()) -> Candidate:
        """Return the trial whose turn is next on a slot, among those that may meet one of these partitions, if any."""
        if len(self._candidates) == 1:
            return next(iter(self._candidates.values()))
        if n_slots != self._n_slots:
            self._n_slots = n_slots
            self._turns.clear()
        among = [turns for partition in partitions if (turns := self._turns_over(partition))]
        next_turns = [_next_turn(turns, slot_turn) for turns in among or [self._turns_over(None)]]
        return self._candidates[min(next_turns, key=lambda turn: ((turn[0] - slot_turn) % n_slots, turn[1]))[1]]

    def _turn(self, order: int) -> Turn:
        return self._candidates[order].trial_number % self._n_slots, order

    def _turns_over(self, partition: int | None) -> list[Turn]:
        """Return the turns of the trials that may meet a partition next, sorted."""
        if partition not in self._turns:
            trials = self._candidates.items()
            able = (k for k, trial in trials if partition is None or partition in trial.partition_numbers)
            self._turns[partition] = sorted(map(self._turn, able))
        return self._turns[partition]

    def _turns_with(self, candidate: Candidate) -> Iterator[list[Turn]]:
        if self._turns:
            for partition in (None, *candidate.partition_numbers):
                if partition in self._turns:
                    yield self._turns[partition]


class RankedTrials:
    """Trials by rank, by lead, then by the seconds of work that they have left, the most first."""

    def __init__(self) -> None:
        self._tied: dict[Place, TiedTrials] = {}
        self._first: list[Place] = []  # a heap; may hold keys of which no trial is left

    def add(self, order: int, candidate: Candidate) -> None:
        """Add a trial."""
        key = candidate.rank, candidate.lead, -candidate.remaining_seconds
        if key not in self._tied:
            self._tied[key] = TiedTrials()
            heapq.heappush(self._first, key)
            # Keys without trials stay in the heap until they surface, since removing from its middle takes as long as a
            # sweep. Once they are the majority they are swept out; a sorted list is a heap.
            if len(self._first) > 2 * len(self._tied) + 64:
                self._first = sorted(self._tied)
        self._tied[key].add(order, candidate)

    def remove(self, order: int, candidate: Candidate) -> None:
        """Remove a trial."""
        key = candidate.rank, candidate.lead, -candidate.remaining_seconds
        tied = self._tied[key]
        tied.remove(order)
        if not tied:
            del self._tied[key]

    def first(self) -> TiedTrials | None:
        """Return the trials of the lowest rank that have most work left; None if there are none."""
        while self._first and self._first[0] not in self._tied:
            heapq.heappop(self._first)
        return self._tied[self._first[0]] if self._first else None


def _next_turn(turns: list[Turn], slot_turn: int) -> Turn:
    place = bisect_left(turns, (slot_turn,))
    return turns[place if place < len(turns) else 0]
