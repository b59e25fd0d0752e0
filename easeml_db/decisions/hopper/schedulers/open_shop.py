"""Open-shop schedules of one epoch: n trials, m machines, each trial once on each machine, in any order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from easeml_db.decisions.hopper.schedulers.contract import Placement, Workload
from easeml_db.decisions.hopper.schedulers.longest_remaining import LongestRemaining
from easeml_db.decisions.hopper.schedulers.makespan_simulation import simulate

Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class OpenShopSchedule:
    """Starts and lengths of all operations in seconds, both of shape (n, m)."""

    starts: Times
    seconds: Times

    @property
    def makespan_seconds(self) -> float:
        """Seconds from 0 to the last end."""
        return float((self.starts + self.seconds).max(initial=0.0))

    def orders(self) -> list[list[int]]:
        """Return the trials of each machine in order of their start, counted from 0."""
        # Of operations that start at once all but the last have no length.
        return [
            [int(i) for i in np.lexsort((self.seconds[:, j], self.starts[:, j]))] for j in range(self.starts.shape[1])
        ]

    def has_conflict(self) -> bool:
        """Return whether two operations of a trial, or of a machine, overlap (by more than rounding)."""
        ends = self.starts + self.seconds
        tolerance = 1e-9 * max(self.makespan_seconds, 1.0)
        lines = [*zip(self.starts, ends, strict=True), *zip(self.starts.T, ends.T, strict=True)]
        return any(_overlap(starts, stops, tolerance) for starts, stops in lines)


def earliest(schedule: OpenShopSchedule) -> OpenShopSchedule:
    """Return the schedule with every operation as early as the order of its trial and of its machine allows."""
    starts = np.zeros_like(schedule.starts)
    trial_free, machine_free = np.zeros(starts.shape[0]), np.zeros(starts.shape[1])
    # By start; of operations that start at once, one without length goes first, or it would wait for the others.
    for flat in np.lexsort((schedule.seconds.ravel(), schedule.starts.ravel())):
        i, j = divmod(int(flat), starts.shape[1])
        starts[i, j] = max(trial_free[i], machine_free[j])
        trial_free[i] = machine_free[j] = starts[i, j] + schedule.seconds[i, j]
    return OpenShopSchedule(starts, schedule.seconds)


def dense(seconds: Times) -> OpenShopSchedule:
    """Return a schedule that never idles a machine while a trial could run on it: longest remaining work first.

    Its makespan is at most L_max + (m - 1) T_max, with L_max the largest load and T_max the longest operation.
    """
    n, m = seconds.shape
    workload = Workload(tuple(map(tuple, seconds.tolist())), Placement.one_holder_each(range(m)))
    starts = np.zeros((n, m))
    for unit in simulate(workload, LongestRemaining(workload.placement)).units:
        starts[unit.trial_number - 1, unit.partition_number] = unit.start_seconds
    return OpenShopSchedule(starts, seconds)


def _overlap(starts: Times, ends: Times, tolerance: float) -> bool:
    order = [k for k in np.argsort(starts, kind="stable") if ends[k] > starts[k]]
    return any(ends[a] > starts[b] + tolerance for a, b in pairwise(order))
