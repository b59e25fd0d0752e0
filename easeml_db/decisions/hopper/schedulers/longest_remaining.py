"""Longest remaining work first.

Idle slots choose one after the other, the most loaded first. A slot takes, of the idle trials of the lowest rank, and
of these the smallest lead, that it can run, the one with most remaining seconds (never timed: first of all); among
equals one whose next partition the slot has cached, then by rotation: the smallest (i - j) mod n for trial number i,
slot j and n slots. Where the visit order is free, the trial meets a partition that the slot has cached, if any; where
slots hold only some partitions, the most loaded one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from easeml_db.decisions.hopper.schedulers.contract import Assignment, Cached, Candidate, Placement
from easeml_db.decisions.hopper.schedulers.partition_loads import PartitionLoads
from easeml_db.decisions.hopper.schedulers.ranked_trials import RankedTrials
from easeml_db.decisions.hopper.schedulers.trials_by_partition import TrialsByPartition


class LongestRemaining:
    """A scheduler that never idles a slot while a trial could run on it."""

    def __init__(self, placement: Placement) -> None:
        self._idle: dict[int, Candidate] = {}  # by trial
        self._order: dict[int, int] = {}  # in which trials have arrived, by trial
        self._loads = PartitionLoads(placement)
        self._anywhere = RankedTrials()  # where every slot can run every partition
        self._over = TrialsByPartition(placement.n_partitions)  # where slots hold only some
        self._is_bound = placement.holders is not None
        self.serve(placement)

    def __len__(self) -> int:
        return len(self._idle)

    def serve(self, placement: Placement) -> bool:
        """Serve other slots from now on; they take part in the rotation."""
        if self._is_bound != (placement.holders is not None):
            return False
        if self._is_bound:
            self._loads.serve(placement)
        self._n_partitions, self._n_slots = placement.n_partitions, max(len(placement.segment_of), 1)
        self._turns = {slot: turn for turn, slot in enumerate(placement.slots)}
        return True

    def put(self, candidate: Candidate) -> None:
        """Mark a trial as idle, or update it."""
        self.take(candidate.trial_id)
        self._idle[candidate.trial_id] = candidate
        order = self._order.setdefault(candidate.trial_id, len(self._order))
        if self._is_bound:
            self._over.add(order, candidate)
            self._loads.add(candidate)
        else:
            self._anywhere.add(order, candidate)

    def take(self, trial_id: int) -> None:
        """Remove a trial."""
        candidate = self._idle.pop(trial_id, None)
        if candidate is None:
            return
        if self._is_bound:
            self._over.remove(self._order[trial_id])
            self._loads.remove(candidate)
        else:
            self._anywhere.remove(self._order[trial_id], candidate)

    def choose(self, idle_slots: Sequence[int], cached: Cached | None = None) -> list[Assignment]:
        """Fill idle slots as far as idle trials reach."""
        chosen = []
        for slot in self._loads.most_loaded_slots(idle_slots) if self._is_bound else idle_slots:
            if not self._idle:
                break
            there = () if cached is None else cached.get(slot, ())
            candidate = self._next_bound(slot) if self._is_bound else self._next_cached(slot, there)
            if candidate is not None:
                partition = self._partition(candidate, slot, there)
                self.take(candidate.trial_id)
                chosen.append(Assignment(candidate.trial_id, partition, slot))
        return chosen

    def _next_cached(self, slot: int, cached: Collection[int]) -> Candidate | None:
        """Choose among all trials; where all partitions are cached, none is better than another."""
        tied = self._anywhere.first()
        if tied is None:
            return None
        return tied.first(self._turns[slot], self._n_slots, cached if len(cached) < self._n_partitions else ())

    def _next_bound(self, slot: int) -> Candidate | None:
        """Choose among the trials that may next meet the most loaded partition on the slot."""
        # max_j sum_i T_ij bounds the makespan from below: the fullest partition must not fall behind.
        for partition in self._loads.most_loaded_partitions(slot):
            candidate = self._over.first(partition, self._turns[slot], self._n_slots)
            if candidate is not None:
                return candidate
        return None

    def _partition(self, candidate: Candidate, slot: int, cached: Collection[int]) -> int:
        """Choose among the open partitions: a cached one if all slots hold all partitions, else the most loaded."""
        if self._is_bound:
            held = self._loads.held_by(slot)
            return max((q for q in candidate.partition_numbers if q in held), key=self._loads.share)
        return next((q for q in candidate.partition_numbers if q in cached), candidate.partition_numbers[0])
