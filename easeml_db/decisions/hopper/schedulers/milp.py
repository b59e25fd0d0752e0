"""Open shop solved exactly, within a time limit: the integer program of Cerebro (VLDB 2020, section 4.3), corrected.

The paper's constraints order each pair of operations of a trial, and each pair of a machine, by a binary variable and
a large constant; a literal copy of (a) compares the wrong pairs. CP-SAT of OR-Tools states the same disjunctions as
intervals that must not overlap, and solves them much faster than a general solver does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from easeml_db.decisions.hopper.schedulers.open_shop import OpenShopSchedule, Times, dense, earliest
from easeml_db.errors import InvalidArgument

TICKS = 1_000_000  # of the sum of all seconds; lengths are rounded up to a tick


def solve_open_shop(
    seconds: Times, *, time_limit_seconds: float, seed: int = 0, hint: OpenShopSchedule | None = None
) -> tuple[OpenShopSchedule, bool, float]:
    """Return (schedule, whether it is proved optimal to within a tick, proved lower bound in seconds).

    `seconds` has the shape (n, m). Never longer than the hint. Raises InvalidArgument if OR-Tools is missing.
    """
    cp_model = _cp_model()
    best = min([dense(seconds), *([hint] if hint else [])], key=lambda schedule: schedule.makespan_seconds)
    bound = max(float(seconds.sum(axis=0).max(initial=0.0)), float(seconds.sum(axis=1).max(initial=0.0)))
    # The bound of an open shop, max(max_i sum_j T_ij, max_j sum_i T_ij): what meets it needs no solver.
    if best.makespan_seconds <= bound * (1 + 1e-9):
        return best, True, bound
    tick = float(seconds.sum()) / TICKS
    model = cp_model.CpModel()
    starts, makespan = _state(cp_model, model, np.ceil(seconds / tick).astype(np.int64))
    for variable, value in zip(starts.ravel(), best.starts.ravel(), strict=True):
        model.add_hint(variable, int(np.ceil(value / tick)))
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_seconds
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        values = np.array([[solver.value(variable) for variable in row] for row in starts], float)
        # Ticks round lengths up, so between operations there are gaps of up to a tick.
        solution = earliest(OpenShopSchedule(values * tick, seconds))
        best = min(best, solution, key=lambda schedule: schedule.makespan_seconds)
    return best, status == cp_model.OPTIMAL or best.makespan_seconds <= bound * (1 + 1e-9), bound


def _state(cp_model: Any, model: Any, ticks: npt.NDArray[np.int64]) -> tuple[Any, Any]:
    """Add the constraints that operations of a trial, and of a machine, do not overlap; return starts and makespan."""
    horizon = int(ticks.sum())
    starts = np.empty(ticks.shape, object)
    intervals = np.empty(ticks.shape, object)
    for place, length in np.ndenumerate(ticks):
        starts[place] = model.new_int_var(0, horizon, "")
        intervals[place] = model.new_fixed_size_interval_var(starts[place], int(length), "")
    # Rows are trials and columns machines: one condition in place of the paper's Y and Z with their large constant V.
    for line in (*intervals, *intervals.T):
        model.add_no_overlap(list(line))
    makespan = model.new_int_var(int(max(ticks.sum(axis=0).max(), ticks.sum(axis=1).max())), horizon, "")
    for place, length in np.ndenumerate(ticks):
        model.add(makespan >= starts[place] + int(length))
    return starts, makespan


def _cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise InvalidArgument(
            "scheduler milp needs OR-Tools, which is not installed", hint="pip install 'easeml-db[milp]'"
        ) from error
    return cp_model
