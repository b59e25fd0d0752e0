"""What arms of open runs cost, in seconds on one slot and in units of the mean of all of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from easeml_db.bandits.prior import Vector
from easeml_db.run import Arm, Run
from easeml_db.tenancy.history import History

DRIFT = 1.1  # the unit is renewed when the mean has moved by this factor
UNKNOWN_SECONDS = 1.0  # for a unit of work, where nothing at all is known
LEAST_SECONDS = 1e-6  # a cost of zero would be chosen for ever


class ArmCosts:
    """Seconds of each arm: observed, else timed, else from history. The unit stays while the mean moves little, since
    every bound moves with it."""

    def __init__(self, history: History) -> None:
        self.unit_seconds = 0.0
        self._history = history
        self._timed: dict[int, Mapping[int, float]] = {}  # by arm, by run
        self._seconds: dict[int, Vector] = {}
        self._sum, self._n = 0.0, 0

    def put(self, run: Run) -> None:
        """Take in a run, or what has become of it."""
        self._count(run.run_id, -1)
        self._seconds[run.run_id] = np.array([self._of(run.run_id, arm) for arm in run.arms])
        self._count(run.run_id, 1)
        self.unit_seconds = self.unit_seconds or self._mean()

    def drop(self, run_id: int) -> None:
        """Forget a run."""
        self._count(run_id, -1)
        self._seconds.pop(run_id, None)
        self._timed.pop(run_id, None)

    def set_timed(self, run: Run, seconds: Mapping[int, float]) -> bool:
        """Take in what pilots say, by arm; return whether that is news."""
        if seconds == self._timed.get(run.run_id, {}):
            return False
        self._timed[run.run_id] = dict(seconds)
        self.put(run)
        return True

    def in_units(self, run_id: int) -> Vector:
        """Costs of a run's arms, shape (K,)."""
        return self._seconds[run_id] / self.unit_seconds

    def renew_unit(self) -> bool:
        """Take over the mean as the unit, if it has moved far from it; return whether it has."""
        if not self._n or 1 / DRIFT < self._mean() / self.unit_seconds < DRIFT:
            return False
        self.unit_seconds = self._mean()
        return True

    def _mean(self) -> float:
        return max(self._sum / self._n, LEAST_SECONDS) if self._n else 0.0

    def _count(self, run_id: int, sign: int) -> None:
        seconds = self._seconds.get(run_id)
        if seconds is not None:
            self._sum += sign * float(seconds.sum())
            self._n += sign * len(seconds)

    def _of(self, run_id: int, arm: Arm) -> float:
        known = arm.cost_seconds if arm.cost_seconds is not None else self._timed.get(run_id, {}).get(arm.arm_id)
        return max(self._expected(arm) if known is None else known, LEAST_SECONDS)

    def _expected(self, arm: Arm) -> float:
        seconds_per_work = self._history.seconds_per_work(arm.name)
        return arm.work * (UNKNOWN_SECONDS if seconds_per_work is None else seconds_per_work)
