"""What closed arms of all runs tell about future ones: qualities for priors, and costs for work of the same kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from easeml_db.decisions.bandits.prior import Matrix
from easeml_db.words.tenant import PastArm

MAX_RUNS = 500  # the newest
MARGIN = 50  # that may be kept beside them, so that not each run that ends has all of them sorted


class History:
    """Closed arms by run. Adding one again replaces it. If there are very many runs, the oldest are forgotten except
    for the costs of their arms: their qualities are no longer used.
    """

    def __init__(self, arms: Iterable[PastArm] = ()) -> None:
        self._arms: dict[int, dict[str, PastArm]] = {}
        self._spent: dict[str | None, tuple[float, float]] = {}  # seconds and work by arm; None: of all arms
        for arm in arms:
            self.add(arm)

    def add(self, arm: PastArm) -> None:
        """Add a closed arm."""
        tried = self._arms.setdefault(arm.run_id, {})
        if arm.name in tried:
            self._count(tried[arm.name], -1)
        tried[arm.name] = arm
        self._count(arm, 1)
        if len(self._arms) > MAX_RUNS + MARGIN:
            for run_id in sorted(self._arms)[:-MAX_RUNS]:
                del self._arms[run_id]

    def _count(self, arm: PastArm, sign: int) -> None:
        if arm.cost_seconds > 0:
            for name in (arm.name, None):
                seconds, work = self._spent.get(name, (0.0, 0.0))
                self._spent[name] = (seconds + sign * arm.cost_seconds, work + sign * arm.work)

    def qualities(self, task: str, names: Sequence[str], *, without: int) -> Matrix:
        """Return qualities (n, K) of these arms in past runs of a task but one, nan where an arm was not tried.

        Only runs that tried at least two of the arms count, or one where K is 1: others compare nothing.
        """
        rows = []
        for run_id in sorted(self._arms)[-MAX_RUNS:]:
            tried = self._arms[run_id]
            row = [tried[name].quality if name in tried and tried[name].task == task else np.nan for name in names]
            if run_id != without and sum(value == value for value in row) >= min(2, len(names)):
                rows.append(row)
        return np.array(rows, dtype=float).reshape(len(rows), len(names))

    def seconds_per_work(self, name: str) -> float | None:
        """Return the mean seconds for a unit of an arm's work, of all arms if it is unknown; None without history."""
        seconds, work = self._spent.get(name) or self._spent.get(None) or (0.0, 0.0)
        return seconds / work if work > 0 else None

    def knows_cost(self, name: str) -> bool:
        """Return whether the arm has been closed before, and so needs no pilot."""
        return self._spent.get(name, (0.0, 0.0))[1] > 0
