"""Runs and their trials as the tables keep them.

A write under a stale lease changes nothing; nor does a write to a run that is gone, or whose rows are locked. The
coordinator then reads the run again and finds what is left to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from easeml_db.words.run import Run


class RunStore(Protocol):
    """Reads runs, and records how they are scheduled and how they end."""

    async def open_runs(self) -> list[int]:
        """Return the numbers of all queued and running runs, oldest first."""

    async def read_ahead(self, run_ids: Sequence[int]) -> None:
        """Read several runs without units under way at once; the next `read` of each may return the result."""

    async def read(self, run_id: int) -> Run | None:
        """Return an open run; None when it ended or is gone. Raises EasemlError where its rows cannot be read."""

    async def read_again(self, known: Run) -> Run | None:
        """Return an open run as `read` does, where little has changed since `known`: it reads no trials that had no
        unit to run and have none now."""

    async def start(self, run_id: int) -> None:
        """Mark a queued run as running."""

    async def plan(
        self, run_id: int, scheduler: str, simulated_seconds: float | None, bound_seconds: float | None, reason: str
    ) -> None:
        """Record how a run is scheduled from now on."""

    async def fail_trial(self, run_id: int, trial_id: int, reason: str) -> None:
        """Mark an open trial as failed, with the reason."""

    async def has_crashed(self, life: str | None) -> bool:
        """Return whether the server has restarted by itself since a life of it (the detail of ServerCrashed), because
        one of its processes crashed. Not where it was started anew, is another, or only a connection broke. A report
        that names no life is believed.
        """

    async def crashed(self, run_id: int, trial_id: int, reason: str) -> tuple[list[int], bool]:
        """Add to the run's history that the server crashed during a trial's unit. End the trial, and with it all open
        trials of its architecture in this run, which would crash it as well; return which have ended, and whether
        none is left, since rows may be locked. Those that a procedure begins later fail at once, unless the run is
        resumed.
        """

    async def lost(self, run_id: int, trial_id: int, reason: str) -> int:
        """Add to the run's history that the server went away during a trial's unit; return how often in a row."""

    async def fail(self, run_id: int, reason: str) -> bool:
        """End a run that cannot be served: failed, with the reason; its open trials are cancelled. Return whether it is
        over now, as `finish` does."""

    async def begin_ending(self, run_id: int) -> bool:
        """End the search of a run whose best trial has not been tested: stop its other trials, and leave only the
        test of that one. Return whether there is something to test, which is true only once.
        """

    async def finish(self, run_id: int) -> bool:
        """End a run: stop what is left of its trials; failed when every trial failed, else finished. Return whether it
        is over now: not while its rows are locked.
        """

    async def note(self, run_id: int, trial_id: int | None, kind: str, message: str) -> None:
        """Add an event to the run's history."""
