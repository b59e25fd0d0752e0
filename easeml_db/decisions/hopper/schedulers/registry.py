"""The schedulers by name: what each does and needs, how it is made, and which of them a run gets by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from easeml_db.decisions.hopper.schedulers.bounds import workload_bound
from easeml_db.decisions.hopper.schedulers.contract import Placement, Scheduler, Workload
from easeml_db.decisions.hopper.schedulers.longest_remaining import LongestRemaining
from easeml_db.decisions.hopper.schedulers.makespan_simulation import simulate
from easeml_db.decisions.hopper.schedulers.milp import solve_open_shop
from easeml_db.decisions.hopper.schedulers.open_shop import OpenShopSchedule
from easeml_db.decisions.hopper.schedulers.random import RandomOrder
from easeml_db.decisions.hopper.schedulers.rotation import machines, rotation
from easeml_db.decisions.hopper.schedulers.slot_orders import Entry, SlotOrderFollower, SlotOrders
from easeml_db.decisions.hopper.schedulers.vector_rearrangement import vector_rearrangement
from easeml_db.errors import InvalidArgument
from easeml_db.words.run import UNPLANNED

DEFAULT = "auto"
FALLBACK = UNPLANNED
MAX_SIMULATED_UNITS = 2_500  # 0.07 s, for which the coordinator does nothing else
ALWAYS_TRIED = ("longest_remaining", "rotation")
NEAR_ENOUGH = 1.005  # times the bound: then nothing costlier is tried
MAX_REARRANGED = 30  # trials, on four slots in 0.07 s: it solves a linear program for each
MILP_SECONDS = 2.0


@dataclass(frozen=True)
class Description:
    """A scheduler in words; `needs_free_order`: it chooses the partitions; `needs_single_holders`: it cannot use
    replicas."""

    summary: str
    needs_free_order: bool = False
    needs_single_holders: bool = False


SCHEDULERS: Mapping[str, Description] = MappingProxyType(
    {
        "auto": Description("the one with the shortest makespan in a simulation before the run"),
        "longest_remaining": Description("the idle trial with most work left, on the most loaded idle slot"),
        "rotation": Description("slots pass trials on in a circle and wait for one another", False, True),
        "random": Description("any unit that can run (Cerebro, algorithm 1)"),
        "vector_rearrangement": Description("open shop with vector rearrangement (Fiala 1983)", True, True),
        "milp": Description("open shop solved by an integer program, within a time limit", True, True),
    }
)


@dataclass(frozen=True)
class Choice:
    """The result of simulating the candidates, in seconds; empty `alternatives`: nothing was simulated."""

    name: str
    makespan_seconds: float | None
    bound_seconds: float
    alternatives: Mapping[str, float]


def list_schedulers() -> list[tuple[str, bool, bool, bool, str]]:
    """Return (name, needs free order, needs single holders, is default, summary) of every scheduler."""
    return [
        (name, d.needs_free_order, d.needs_single_holders, name == DEFAULT, d.summary) for name, d in SCHEDULERS.items()
    ]


def make_scheduler(
    name: str, workload: Workload, *, seed: int = 0, time_limit_seconds: float = MILP_SECONDS
) -> Scheduler:
    """Make a scheduler for a workload. Raises InvalidArgument if none has that name or it does not fit."""
    check_fit(name, workload.placement, workload.visit_order)
    if name == "auto":
        name = choose_scheduler(workload).name
    placement = workload.placement
    if name == "longest_remaining":
        return LongestRemaining(placement)
    if name == "random":
        return RandomOrder(placement, np.random.default_rng(seed % 2**63))
    if name == "rotation":
        return SlotOrderFollower(placement, rotation(len(workload.unit_seconds), placement, workload.visit_order))
    seconds = machine_seconds(workload)
    if name == "vector_rearrangement":
        return SlotOrderFollower(placement, plan_of(vector_rearrangement(seconds), placement))
    hint = vector_rearrangement(seconds)
    schedule, _, _ = solve_open_shop(seconds, time_limit_seconds=time_limit_seconds, seed=seed % 2**31, hint=hint)
    return SlotOrderFollower(placement, plan_of(schedule, placement))


def choose_scheduler(workload: Workload, *, max_units: int = MAX_SIMULATED_UNITS) -> Choice:
    """Simulate the schedulers that could serve a workload and choose the shortest; ties go to the simplest."""
    bound = workload_bound(workload)
    n_units = len(workload.unit_seconds) * workload.placement.n_partitions * workload.n_rounds
    names = [name for name in ("longest_remaining", "rotation", "vector_rearrangement") if _fits(name, workload)]
    if n_units > max_units or len(names) < 2:
        return Choice(FALLBACK, None, bound, {})
    makespans: dict[str, float] = {}
    for name in names:
        is_short = len(workload.unit_seconds) <= MAX_REARRANGED
        if name in ALWAYS_TRIED or (is_short and min(makespans.values()) > NEAR_ENOUGH * bound):
            makespans[name] = simulate(workload, make_scheduler(name, workload)).makespan_seconds
    # Equal schedules may add up their units in another order, and differ in the last digits.
    best = min(makespans, key=lambda name: (round(makespans[name], 9), names.index(name)))
    return Choice(best, makespans[best], bound, makespans)


def check_fit(name: str, placement: Placement, visit_order: str) -> None:
    """Raise InvalidArgument unless a scheduler exists and can serve this placement and visit order."""
    if name not in SCHEDULERS:
        raise InvalidArgument(f"there is no scheduler {name!r}", hint=f"Choose one of: {', '.join(SCHEDULERS)}.")
    needs = SCHEDULERS[name]
    if needs.needs_free_order and visit_order != "free":
        raise InvalidArgument(
            f"scheduler {name} chooses the partitions, so it needs the visit order free, got {visit_order}",
            hint="Ask for visit_order => 'free', or leave the scheduler to easeml.",
        )
    is_replicated = placement.holders is not None and any(len(segments) > 1 for segments in placement.holders)
    if needs.needs_single_holders and is_replicated:
        raise InvalidArgument(
            f"scheduler {name} needs one holder for each partition, and there are replicas",
            hint="Choose longest_remaining or random, or leave the scheduler to easeml.",
        )


def machine_seconds(workload: Workload) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the seconds of each trial on each slot where every partition is given to one slot, shape (n, slots)."""
    given = machines(workload.placement)
    seconds = np.asarray(workload.unit_seconds, float).reshape(-1, workload.placement.n_partitions)
    columns = [seconds[:, list(parts)].sum(axis=1) / workload.speeds.get(slot, 1.0) for slot, parts in given.items()]
    return np.stack(columns, axis=1)


def plan_of(schedule: OpenShopSchedule, placement: Placement) -> SlotOrders:
    """Return an open-shop schedule as a plan; partitions of one slot come one after the other."""
    given = machines(placement)
    return {
        slot: [Entry(i + 1, q, float(schedule.starts[i, j])) for i in order for q in given[slot]]
        for j, (slot, order) in enumerate(zip(given, schedule.orders(), strict=True))
    }


def _fits(name: str, workload: Workload) -> bool:
    try:
        check_fit(name, workload.placement, workload.visit_order)
        machines(workload.placement)
    except InvalidArgument:
        return False
    return True
