"""Costs of the arms of open runs, in seconds on one slot and in units of the mean of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from easeml_db.decisions.bandits.prior import Vector
from easeml_db.decisions.tenancy.history import History
from easeml_db.words.run import Arm

DRIFT = 1.1  # the unit is renewed when the mean has moved by this factor
UNKNOWN_SECONDS = 1.0  # of an arm, where nothing at all is known
LEAST_SECONDS = 1e-6  # a cost of zero would be chosen for ever


class ArmCosts:
    """Seconds of each arm: observed, else timed, else from history, else a guess. The unit is the mean of those that
    are not guesses. It stays while that mean changes little, because every bound changes with it.
    """

    def __init__(self, history: History) -> None:
        self.unit_seconds = 0.0
        self._history = history
        self._timed: dict[int, Mapping[int, float]] = {}  # by arm, by run
        self._seconds: dict[int, Vector] = {}
        self._sums: dict[int, tuple[float, int]] = {}  # sum and number of those that are no guess
        self._sum, self._n = 0.0, 0

    def put(self, run_id: int, arms: Sequence[Arm]) -> None:
        """Add a run with its arms, or update them."""
        arm_seconds = [self._seconds_of(run_id, arm) for arm in arms]
        timed = [seconds for seconds in arm_seconds if seconds is not None]
        guess = sum(timed) / len(timed) if timed else self.unit_seconds or UNKNOWN_SECONDS
        self._count(run_id, -1)
        self._seconds[run_id] = np.array([guess if seconds is None else seconds for seconds in arm_seconds])
        self._sums[run_id] = (sum(timed), len(timed))
        self._count(run_id, 1)
        self.unit_seconds = self.unit_seconds or self._mean() or guess

    def drop(self, run_id: int) -> None:
        """Forget a run."""
        self._count(run_id, -1)
        self._seconds.pop(run_id, None)
        self._sums.pop(run_id, None)
        self._timed.pop(run_id, None)

    def set_timed(self, run_id: int, arms: Sequence[Arm], seconds: Mapping[int, float]) -> bool:
        """Record the seconds that pilots have timed, by arm; return whether anything is new."""
        if seconds == self._timed.get(run_id, {}):
            return False
        self._timed[run_id] = dict(seconds)
        self.put(run_id, arms)
        return True

    def in_units(self, run_id: int) -> Vector:
        """Return the costs of a run's arms, shape (K,)."""
        return self._seconds[run_id] / self.unit_seconds

    def renew_unit(self) -> bool:
        """Make the mean the unit, if it has moved far from it; return whether it has."""
        if not self._n or 1 / DRIFT < self._mean() / self.unit_seconds < DRIFT:
            return False
        self.unit_seconds = self._mean()
        return True

    def _mean(self) -> float:
        return self._sum / self._n if self._n else 0.0

    def _count(self, run_id: int, sign: int) -> None:
        seconds, n_arms = self._sums.get(run_id, (0.0, 0))
        self._sum += sign * seconds
        self._n += sign * n_arms

    def _seconds_of(self, run_id: int, arm: Arm) -> float | None:
        """Return the known seconds of an arm, at least a microsecond."""
        for seconds in (arm.cost_seconds, self._timed.get(run_id, {}).get(arm.arm_id), self._from_history(arm)):
            if seconds is not None:
                return max(seconds, LEAST_SECONDS)
        return None

    def _from_history(self, arm: Arm) -> float | None:
        seconds_per_work = self._history.seconds_per_work(arm.name)
        return None if seconds_per_work is None else arm.work * seconds_per_work
