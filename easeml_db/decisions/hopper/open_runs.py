"""All open runs, and which of them are worth a look: with thousands open, few have work, and fewer have changed."""

from __future__ import annotations

from collections.abc import Iterator

from easeml_db.decisions.hopper.open_run import OpenRun


class OpenRuns:
    """Runs by number. Whoever changes one touches it."""

    def __init__(self) -> None:
        self._runs: dict[int, OpenRun] = {}
        self._active: dict[int, OpenRun] = {}
        self._changed: dict[int, None] = {}  # in the order of the changes

    def __contains__(self, run_id: int) -> bool:
        return run_id in self._runs

    def __getitem__(self, run_id: int) -> OpenRun:
        return self._runs[run_id]

    def __iter__(self) -> Iterator[OpenRun]:
        return iter(self._runs.values())

    def get(self, run_id: int) -> OpenRun | None:
        """The run, if it is open."""
        return self._runs.get(run_id)

    def put(self, open_run: OpenRun) -> None:
        """Add a run."""
        self._runs[open_run.run_id] = open_run
        self.touch(open_run.run_id)

    def drop(self, run_id: int) -> None:
        """Forget a run."""
        for runs in (self._runs, self._active, self._changed):
            runs.pop(run_id, None)

    def touch(self, run_id: int) -> None:
        """Take in that something about a run has changed."""
        open_run = self._runs.get(run_id)
        if open_run is None:
            return
        self._changed[run_id] = None
        if open_run.has_work():
            self._active[run_id] = open_run
        else:
            self._active.pop(run_id, None)

    def active(self) -> list[OpenRun]:
        """Runs with trials that may run, run, or want a pilot."""
        return list(self._active.values())

    def changed(self) -> list[OpenRun]:
        """Runs that were touched since `settle`."""
        return [self._runs[run_id] for run_id in self._changed]

    def settle(self) -> None:
        """Take note that all changes have been looked at."""
        self._changed.clear()
