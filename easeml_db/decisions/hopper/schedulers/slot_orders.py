"""Schedulers that follow a plan made beforehand: which trial comes after which on a slot, and which slot after which
for a trial. (Keeping the slots' order alone, a trial that is early somewhere would be missed where it was planned.)

A plan is repeated round after round (a round is one pass of every trial over all partitions), without a barrier
between rounds: a slot that has ended its part of one round begins its part of the next as soon as its first trial can.
A slot waits for its planned trial; it passes over trials that are gone and partitions that were met already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from easeml_db.decisions.hopper.schedulers.contract import Assignment, Cached, Candidate, Placement
from easeml_db.decisions.hopper.schedulers.longest_remaining import LongestRemaining


@dataclass(frozen=True)
class Entry:
    """A trial's turn on a slot: over one partition, or (None) over whichever is next for it. Turns of a trial come by
    their rank."""

    trial_number: int
    partition_number: int | None = None
    rank: float = 0.0


SlotOrders = Mapping[int, Sequence[Entry]]


class SlotOrderFollower:
    """Follows a plan. When nothing is under way and the plan has no unit to start, longest remaining helps out."""

    def __init__(self, placement: Placement, plan: SlotOrders) -> None:
        self._plan = {slot: tuple(entries) for slot, entries in plan.items()}
        self._ranks = {(e.trial_number, e.partition_number): e.rank for entries in plan.values() for e in entries}
        self._dense = LongestRemaining(placement)
        self._idle: dict[int, Candidate] = {}  # by trial number
        self._number_of: dict[int, int] = {}  # trial number, by trial id
        self._away: set[int] = set()  # numbers of trials chosen and not heard of since
        self._place = dict.fromkeys(self._plan, 0)
        self._round: dict[int, int] = {}

    def put(self, candidate: Candidate) -> None:
        """Mark a trial as idle, or update it."""
        self._number_of[candidate.trial_id] = candidate.trial_number
        self._away.discard(candidate.trial_number)
        self._idle[candidate.trial_number] = candidate
        self._dense.put(candidate)

    def take(self, trial_id: int) -> None:
        """Remove a trial."""
        self._dense.take(trial_id)
        number = self._number_of.get(trial_id, 0)
        self._away.discard(number)
        self._idle.pop(number, None)

    def serve(self, placement: Placement) -> bool:
        """Return False: the plan was made for the slots that it has."""
        return False

    def choose(self, idle_slots: Sequence[int], cached: Cached | None = None) -> list[Assignment]:
        """Start the next units of the plan on these slots."""
        assignments = [self._next_on(slot) for slot in idle_slots if self._idle]
        chosen = [assignment for assignment in assignments if assignment is not None]
        if not chosen and self._idle and not self._away:
            chosen = self._dense.choose(idle_slots, cached)
            for assignment in chosen:
                self._start(assignment.trial_id)
        return chosen

    def _next_on(self, slot: int) -> Assignment | None:
        """Go through the slot's plan up to the first trial that it starts or waits for, once round at most."""
        entries = self._plan.get(slot, ())
        for _ in entries:
            entry = entries[self._place[slot]]
            candidate = self._idle.get(entry.trial_number)
            if candidate is None and entry.trial_number in self._away:
                return None
            if candidate is not None:
                partition = self._due(entry, candidate, slot)
                if partition is not None and self._is_next(entry, candidate):
                    self._advance(slot)
                    self._start(candidate.trial_id)
                    return Assignment(candidate.trial_id, partition, slot)
                if partition is not None or self._is_early(entry, candidate, slot):
                    return None
            self._advance(slot)
        return None

    def _due(self, entry: Entry, candidate: Candidate, slot: int) -> int | None:
        """Return the partition that a trial meets at its turn; None when it is not the one."""
        if entry.partition_number is None:
            return candidate.partition_numbers[0]
        is_now = candidate.round_number == self._round_of(slot)
        return entry.partition_number if is_now and entry.partition_number in candidate.partition_numbers else None

    def _is_next(self, entry: Entry, candidate: Candidate) -> bool:
        """Return whether no other partition comes before this one for the trial."""
        ranks = (self._ranks.get((entry.trial_number, q), 0.0) for q in candidate.partition_numbers)
        return entry.partition_number is None or entry.rank <= min(ranks)

    def _is_early(self, entry: Entry, candidate: Candidate, slot: int) -> bool:
        """Return whether the slot is ahead of the trial and must wait; if it is behind, it passes on."""
        return entry.partition_number is not None and candidate.round_number < self._round_of(slot)

    def _round_of(self, slot: int) -> int:
        if slot not in self._round:
            self._round[slot] = min(candidate.round_number for candidate in self._idle.values())
        return self._round[slot]

    def _advance(self, slot: int) -> None:
        self._place[slot] += 1
        if self._place[slot] == len(self._plan[slot]):
            self._place[slot] = 0
            if slot in self._round:
                self._round[slot] += 1

    def _start(self, trial_id: int) -> None:
        self._dense.take(trial_id)
        number = self._number_of[trial_id]
        del self._idle[number]
        self._away.add(number)
