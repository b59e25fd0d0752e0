"""The runs for which a decision is recorded: with hundreds of runs, a row for each would fill most of the database."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

MAX_STANDINGS = 20


class ToldRuns:
    """The chosen run, those with the largest gaps, and the others in turn, so that each is recorded eventually."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}  # the last decision that was recorded for a run
        self._n_decisions = 0

    def choose(self, gaps: Mapping[int, float], chosen: int) -> set[int]:
        """Return the runs for which this decision is recorded. gaps: of all runs with a waiting arm, in order of
        arrival.
        """
        if len(gaps) <= MAX_STANDINGS:
            return set(gaps)
        recorded = {chosen, *heapq.nlargest(MAX_STANDINGS // 2, gaps, key=lambda run_id: gaps[run_id])}
        others = (run_id for run_id in gaps if run_id not in recorded)
        n_left = MAX_STANDINGS - len(recorded)
        return recorded.union(heapq.nsmallest(n_left, others, key=lambda run_id: self._last.get(run_id, 0)))

    def told(self, run_ids: Iterable[int]) -> None:
        """Note that a decision was recorded for these runs."""
        self._n_decisions += 1
        self._last.update(dict.fromkeys(run_ids, self._n_decisions))

    def drop(self, run_id: int) -> None:
        """Forget a run."""
        self._last.pop(run_id, None)
