"""Longest remaining work first.

Idle slots choose one after the other, the most loaded first. A slot takes, of the idle trials of the lowest rank that
it can run, the one with most remaining seconds (never timed: first of all); among equals one whose next partition the
slot has cached, then by rotation: the smallest (i - j) mod n for trial number i, slot j and n slots. Where the visit
order is free, the trial meets a partition that the slot has cached, if any; where slots hold only some partitions, the
most loaded one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from easeml_db.decisions.hopper.contract import Assignment, Cached, Candidate, Placement
from easeml_db.decisions.hopper.idle_trials import IdleTrialsScheduler


class LongestRemaining(IdleTrialsScheduler):
    """A scheduler that never idles a slot while a trial could run on it."""

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement)
        self._count_turns(placement)

    def __len__(self) -> int:
        return len(self._idle)

    def serve(self, placement: Placement) -> bool:
        """Serve other slots from now on; they take part in the rotation."""
        self._count_turns(placement)
        return super().serve(placement)

    def choose(self, idle_slots: Sequence[int], cached: Cached | None = None) -> list[Assignment]:
        """Fill idle slots as far as idle trials reach."""
        chosen = []
        for slot in self._idle.most_loaded_first(idle_slots):
            if not len(self._idle):
                break
            there = () if cached is None else cached.get(slot, ())
            candidate = self._next_for(slot, there)
            if candidate is not None:
                partition = self._partition(candidate, slot, there)
                self._idle.take(candidate.trial_id)
                chosen.append(Assignment(candidate.trial_id, partition, slot))
        return chosen

    def _count_turns(self, placement: Placement) -> None:
        self._n_slots = max(len(placement.slots), 1)
        self._turns = {slot: turn for turn, slot in enumerate(placement.slots)}

    def _next_for(self, slot: int, cached: Collection[int]) -> Candidate | None:
        remaining = self._idle.of_lowest_rank(self._idle.fitting_most_loaded(slot))
        best = int(remaining.argmax())
        if remaining[best] < 0:
            return None
        tied = (remaining == remaining[best]).nonzero()[0]
        if len(tied) > 1 and cached and self._idle.placement.holders is None:
            warm = self._idle.cached(cached, tied)
            tied = warm if len(warm) else tied
        if len(tied) == 1:
            return self._idle.candidate(int(tied[0]))
        turns = (self._idle.numbers[tied] - self._turns[slot]) % self._n_slots
        return self._idle.candidate(int(tied[turns.argmin()]))

    def _partition(self, candidate: Candidate, slot: int, cached: Collection[int]) -> int:
        """Choose among the partitions that are open: where all slots hold all a cached one, else the most loaded."""
        open_ = self._idle.open_on(candidate, slot)
        if self._idle.placement.holders is not None:
            return max(open_, key=self._idle.share)
        return next((q for q in open_ if q in cached), open_[0])
