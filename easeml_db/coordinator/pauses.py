"""Paused runs: an open transaction of somebody else has locked their rows, and slots work for other runs meanwhile."""

from __future__ import annotations

import math

from easeml_db.decisions.hopper.dispatch.open_runs import OpenRuns

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.1, 5.0  # twice as long each time


class Pauses:
    """Which runs are aside, and until when. A pause that ends lets the run try again, and ends no other."""

    def __init__(self, runs: OpenRuns) -> None:
        self._runs = runs
        self._until: dict[int, float] = {}
        self._seconds: dict[int, float] = {}  # of the last pause, until a unit of the run is recorded

    def put_aside(self, run_id: int, now_seconds: float) -> None:
        """Start nothing of a run for a while."""
        if run_id not in self._runs or run_id in self._runs.aside():
            return
        seconds = min(2 * self._seconds.get(run_id, FIRST_PAUSE_SECONDS / 2), LAST_PAUSE_SECONDS)
        self._seconds[run_id], self._until[run_id] = seconds, now_seconds + seconds
        self._runs.put_aside(run_id)

    def recorded(self, run_id: int) -> None:
        """Begin with short pauses again: nothing is in the way of the run."""
        if self._seconds:
            self._seconds.pop(run_id, None)

    def take_back(self, now_seconds: float) -> None:
        """Go on with the runs whose pause is over."""
        for run_id in [run_id for run_id, until in self._until.items() if until <= now_seconds]:
            del self._until[run_id]
            self._runs.take_back(run_id)
        if len(self._seconds) > len(self._until):
            self._seconds = {run_id: seconds for run_id, seconds in self._seconds.items() if run_id in self._runs}

    def until(self) -> float:
        """Return when the next pause is over; infinity when no run is aside."""
        return min(self._until.values(), default=math.inf)
