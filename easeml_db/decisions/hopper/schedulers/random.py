"""Any unit that can run, uniformly: Cerebro's randomised scheduler (VLDB 2020, section 4.3, algorithm 1).

Like every scheduler that never idles a slot while a trial could run on it, its makespan is at most
L_max + (p - 1) T_max, with L_max the largest load of a slot and T_max the longest unit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from easeml_db.decisions.hopper.schedulers.contract import Assignment, Cached, Candidate, Placement
from easeml_db.decisions.hopper.schedulers.idle_trials import IdleTrials


class RandomOrder:
    """Chooses uniformly among the units that a slot could run."""

    def __init__(self, placement: Placement, rng: np.random.Generator) -> None:
        self._idle, self._rng = IdleTrials(placement), rng

    def put(self, candidate: Candidate) -> None:
        """Mark a trial as idle, or update it."""
        self._idle.put(candidate)

    def take(self, trial_id: int) -> None:
        """Remove a trial."""
        self._idle.take(trial_id)

    def serve(self, placement: Placement) -> bool:
        """Serve other slots from now on."""
        self._idle.serve(placement)
        return True

    def choose(self, idle_slots: Sequence[int], cached: Cached | None = None) -> list[Assignment]:
        """Fill idle slots as far as idle trials reach, in the slots' order."""
        chosen = []
        for slot in idle_slots:
            columns = self._idle.fitting(slot)
            if len(columns):
                candidate = self._drawn(columns, slot)
                partition = self._rng.choice(self._idle.open_on(candidate, slot))
                self._idle.take(candidate.trial_id)
                chosen.append(Assignment(candidate.trial_id, int(partition), slot))
        return chosen

    def _drawn(self, columns: npt.NDArray[np.int64], slot: int) -> Candidate:
        """Draw a trial in proportion to its open partitions on the slot, so that units are equally likely."""
        if len(columns) > 1 and self._idle.placement.holders is not None:
            weights = np.asarray(
                [len(self._idle.open_on(self._idle.candidate(int(c)), slot)) for c in columns], np.float64
            )
            return self._idle.candidate(int(self._rng.choice(columns, p=weights / weights.sum())))
        return self._idle.candidate(int(self._rng.choice(columns)))
