"""Open shop with vector rearrangement (Fiala, Mathematics of Operations Research 8, 1983).

    symbol   shape      meaning
    T        (n, p)     seconds of trial i on machine j; T_max the longest, L_max the largest load of a machine
    v        (n, p-1)   T_ij - T_ip: how far a trial takes machine j ahead of machine p
    C        (n+1, p)   load of each machine after the first k trials of the order

Optimal (makespan = L_max) when L_max >= (p^2 + p - 1) T_max; else at most (p - 1) T_max above the optimum, which any
schedule without needless idling reaches.
"""

from __future__ import annotations

import numpy as np

from easeml_db.decisions.hopper.schedulers.open_shop import OpenShopSchedule, Times, dense


def vector_rearrangement(seconds: Times) -> OpenShopSchedule:
    """Schedule trials on machines; `seconds` has the shape (n, p)."""
    n, p = seconds.shape
    if n == 0 or p == 1 or not seconds.any():
        return dense(seconds)
    padded = padded_to_equal_loads(seconds)
    order = steinitz_order(padded[:, :-1] - padded[:, -1:])
    starts = _on_circle(padded[order])
    if starts is None:
        return dense(seconds)
    by_trial = np.empty_like(starts)
    by_trial[order] = starts
    return OpenShopSchedule(by_trial[:n], seconds)


def padded_to_equal_loads(seconds: Times) -> Times:
    """Add trials of operations up to T_max until every machine's load is L_max, shape (n + n_dummies, p)."""
    longest = seconds.max()
    missing = seconds.sum(axis=0).max() - seconds.sum(axis=0)
    rows = [seconds]
    # Less than that is the rounding of the subtractions.
    while (missing > 1e-12 * max(longest, 1e-300)).any():
        dummy = np.minimum(missing, longest)
        rows.append(dummy[None, :])
        missing = missing - dummy
    return np.concatenate(rows)


def steinitz_order(vectors: Times) -> list[int]:
    """Order vectors of shape (n, d) with sum 0 so that every prefix sum stays small (Grinberg and Sevastyanov 1980).

    For the k vectors that are left, a basic solution of {0 <= w <= 1, sum w = k - 1 - d, sum w_i v_i = 0} has a w_i
    that is 0: that vector takes place k. No coordinate of a prefix sum then exceeds d times the largest vector.
    """
    from scipy.optimize import linprog  # it takes long to import

    n, d = vectors.shape
    left, placed = list(range(n)), []
    for k in range(n, d, -1):
        equations = np.vstack([vectors[left].T, np.ones(k)])
        sums = np.append(np.zeros(d), k - 1 - d)
        # Any objective will do: a solution of the simplex method is basic.
        solution = linprog(np.zeros(k), A_eq=equations, b_eq=sums, bounds=(0, 1), method="highs-ds")
        # The program has a solution. Should the solver fail, the order loses its bound, and `_on_circle` tests it.
        weights = solution.x if solution.status == 0 else np.full(k, 1.0)
        # The smallest, because a solver's 0 is not exactly 0.
        placed.append(left.pop(int(np.argmin(weights))))
    return [*left, *reversed(placed)]


def _on_circle(seconds: Times) -> Times | None:
    """Let each machine go through the order on a circle of length L_max, each a little after the one before it.

    Return the starts, shape (n, p), or None where the circle is too short for that.
    """
    p = seconds.shape[1]
    loads = np.vstack([np.zeros(p), np.cumsum(seconds, axis=0)])
    length = loads[-1].max()
    tolerance = 1e-9 * length
    offset, starts = 0.0, [loads[:-1, 0]]
    for j in range(1, p):
        # o_j >= o_{j-1} + max_k(C_{j-1}(k) - C_j(k-1)): a trial ends on machine j - 1 before it starts on machine j.
        earliest = offset + (loads[1:, j - 1] - loads[:-1, j]).max()
        # The machine's break must fall between two operations.
        fitting = (length - loads[:, j])[length - loads[:, j] >= earliest - tolerance]
        if not len(fitting):
            return None
        offset = float(fitting.min())
        started = offset + loads[:-1, j]
        starts.append(np.where(started >= length - tolerance, started - length, started))
    # The same from the last machine to the first, one lap later.
    if offset + (loads[1:, -1] - loads[:-1, 0]).max() > length + tolerance:
        return None
    return np.asarray(np.maximum(np.stack(starts, axis=1), 0.0))
