"""Algorithm 2 of RubberBand: from a plan that keeps the deadline, lower the stage that saves most for the time it
costs.

A step lowers one stage to the next smaller divisor or multiple of its number of trials. Candidates that break the limit
are dropped before the choice; one that costs less and takes no longer counts as infinitely good; a plan that saves less
than a thousandth ends the search. It never raises an allocation, so it starts from several plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

from easeml_db.decisions.planner.simulation import Allocation, Plan, Prediction, Simulator
from easeml_db.decisions.planner.steps import next_smaller

THRESHOLD = 0.001
WARM_STARTS = (1, 2, 3)  # times the cheapest static plan


def optimise(
    simulator: Simulator, start: Plan, is_allowed: Callable[[Prediction], bool], *, max_steps: int = 10_000
) -> Plan:
    """Return the plan at which no step saves enough, or no step is allowed; at latest after `max_steps`."""
    best = start
    for _ in range(max_steps):
        now = simulator.predict(best)
        steps = [(plan, simulator.predict(plan)) for plan in _lowered(simulator, best)]
        # Dropped before the choice: the paper tests the chosen candidate and stops at a violation, although another
        # step may still be possible.
        allowed = [(_benefit(now, after), plan, after) for plan, after in steps if is_allowed(after)]
        _, chosen, then = max(allowed, key=lambda one: one[0], default=((0.0, 0.0), best, now))
        if now.mean_cost - then.mean_cost < THRESHOLD * now.mean_cost:
            break
        best = chosen
    return best


def warm_starts(simulator: Simulator, static: Plan) -> Iterator[Plan]:
    """Yield the cheapest static plan, and multiples of it."""
    most = simulator.prices.types[static[0].type_number].most_slots
    for factor in WARM_STARTS:
        yield tuple(Allocation(k, min(most, factor * n_slots)) for k, n_slots in static)


def _lowered(simulator: Simulator, plan: Plan) -> Iterator[Plan]:
    for stage, (type_number, n_slots) in enumerate(plan):
        n_less = next_smaller(n_slots, simulator.job.stages[stage].n_trials)
        if n_less:
            # The type stays: algorithm 2 knows one instance type.
            yield (*plan[:stage], Allocation(type_number, n_less), *plan[stage + 1 :])


def _benefit(before: Prediction, after: Prediction) -> tuple[float, float]:
    """Return the saving per second lost, and to break ties the saving."""
    # Equation 1: phi = (C(a*) - C(a_i)) / (T(a_i) - T(a*)), C cost and T time; the paper's text swaps the letters.
    saved, lost = before.mean_cost - after.mean_cost, after.mean_seconds - before.mean_seconds
    if lost <= 0:
        return (inf if saved > 0 else 0.0), saved
    return saved / lost, saved
