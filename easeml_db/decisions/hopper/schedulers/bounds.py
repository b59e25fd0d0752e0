"""Lower bounds of the makespan: every measured makespan is reported beside one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from easeml_db.decisions.hopper.schedulers.contract import Workload
from easeml_db.errors import InvalidArgument


def shared_bound(trial_seconds: Sequence[float], n_slots: int) -> float:
    """Bound in seconds where every slot runs every unit at equal speed: max(longest trial, total / slots).

    `trial_seconds` holds the sum of a trial's unit times, shape (n_trials,).
    """
    if n_slots < 1:
        raise InvalidArgument(f"n_slots: expected at least 1, got {n_slots}")
    return max(max(trial_seconds, default=0.0), sum(trial_seconds) / n_slots)


def workload_bound(workload: Workload) -> float:
    """Bound in seconds of a whole workload, wherever partitions are held and however fast the slots are.

    Three bounds hold at once, each with units at the speed of their fastest holder: the longest trial; all work over
    the sum of speeds; and for each set of holders the work that only they can do over their speeds. With replicas the
    last is found by a linear program: work is dealt to holders in fractions. Raises InvalidArgument.
    """
    placement = workload.placement
    speed = {slot: workload.speeds.get(slot, 1.0) for slot in placement.slots}
    if not speed:
        raise InvalidArgument("a workload needs at least one slot")
    able = [frozenset(slot for slot in speed if placement.can_run(slot, q)) for q in range(placement.n_partitions)]
    if not all(able):
        raise InvalidArgument(
            f"partition {able.index(frozenset())} has no slot in service",
            hint="Add slots to a segment that holds it, or replicate the dataset.",
        )
    fastest = np.array([max(speed[slot] for slot in slots) for slots in able])
    seconds = np.asarray(workload.unit_seconds, float).reshape(-1, placement.n_partitions)
    longest = float((seconds / fastest).sum(axis=1).max(initial=0.0))
    work = seconds.sum(axis=0)
    # The set of all slots is one of them: all work over the sum of speeds.
    by_set = [
        sum(work[q] for q, slots in enumerate(able) if slots <= holders) / sum(speed[slot] for slot in holders)
        for holders in {*able, frozenset(speed)}
    ]
    dealt = _dealt(work, able, speed) if placement.holders is not None and any(len(s) > 1 for s in able) else 0.0
    return float(workload.n_rounds * max([longest, dealt, *by_set]))


def _dealt(work: Sequence[float], able: Sequence[frozenset[int]], speed: Mapping[int, float]) -> float:
    """Return the least time in which slots can do the work on each partition, shape (p,), if it may be cut at will."""
    from scipy.optimize import linprog  # it takes long to import

    # Variables: the work on partition q that a slot does, for each pair, and last the makespan.
    pairs = [(q, slot) for q, slots in enumerate(able) for slot in sorted(slots)]
    rows = {slot: row for row, slot in enumerate(speed)}
    columns = np.arange(len(pairs))
    # done: what the holders of a partition do is its work; busy: no slot works longer than the makespan.
    done = np.zeros((len(able), len(pairs) + 1))
    done[[q for q, _ in pairs], columns] = 1.0
    busy = np.zeros((len(rows), len(pairs) + 1))
    busy[[rows[slot] for _, slot in pairs], columns] = [1.0 / speed[slot] for _, slot in pairs]
    busy[:, -1] = -1.0
    cost = np.append(np.zeros(len(pairs)), 1.0)
    solution = linprog(cost, A_ub=busy, b_ub=np.zeros(len(rows)), A_eq=done, b_eq=work, method="highs")
    return float(solution.fun) * (1 - 1e-9) if solution.status == 0 else 0.0  # a hair less: solvers round
