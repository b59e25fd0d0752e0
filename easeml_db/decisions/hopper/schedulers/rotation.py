"""Rotation: slots pass trials on to one another in a circle, each waiting for its planned trial.

With p equal trials on p slots every slot is always busy, and no two want the same trial. Trial i meets slot j at
step k where k = j - i mod max(n, p), for n trials and p slots.
"""

from __future__ import annotations

from itertools import product

from easeml_db.decisions.hopper.schedulers.contract import Placement
from easeml_db.decisions.hopper.schedulers.slot_orders import Entry, SlotOrders
from easeml_db.errors import InvalidArgument


def machines(placement: Placement) -> dict[int, tuple[int, ...]]:
    """Return the partitions of each slot where every partition is given to one slot that can run it, evenly."""
    given: dict[int, list[int]] = {slot: [] for slot in placement.slots}
    for partition in range(placement.n_partitions):
        able = [slot for slot in placement.slots if placement.can_run(slot, partition)]
        if not able:
            raise InvalidArgument(
                f"partition {partition} has no slot in service",
                hint="Add slots to a segment that holds it, or replicate the dataset.",
            )
        given[min(able, key=lambda slot: (len(given[slot]), slot))].append(partition)
    return {slot: tuple(partitions) for slot, partitions in given.items()}


def rotation(n_trials: int, placement: Placement, visit_order: str) -> SlotOrders:
    """Plan trials 1 to n on the slots of a placement."""
    if visit_order == "free":
        return _over_machines(n_trials, placement)
    if placement.holders is None:
        return _over_slots(n_trials, placement)
    return _in_groups(n_trials, placement)


def _over_slots(n_trials: int, placement: Placement) -> SlotOrders:
    """Order trials where every slot can run every partition: they come round, and meet whichever is next for them."""
    slots = placement.slots
    # At least one place for each slot: with fewer trials some places of the circle are empty, and no two slots want one
    # trial at the same step.
    n = max(n_trials, len(slots))
    turns = {slot: [(j - step) % n for step in range(n)] for j, slot in enumerate(slots)}
    return {slot: [Entry(i + 1) for i in order if i < n_trials] for slot, order in turns.items()}


def _over_machines(n_trials: int, placement: Placement) -> SlotOrders:
    """Order trials where each partition has its slot: a round takes every trial past every slot once."""
    given = machines(placement)
    n = max(n_trials, len(given))
    return {
        slot: [Entry(i + 1, q, step) for step, q in product(range(n), given[slot]) if (i := (j - step) % n) < n_trials]
        for j, slot in enumerate(placement.slots)
    }


def _in_groups(n_trials: int, placement: Placement) -> SlotOrders:
    """Order trials in the cyclic order of partitions, p of them at a time: trial i meets i + k mod p at step k."""
    p = placement.n_partitions
    steps = product(range(-(-n_trials // p)), range(p))
    plan: dict[int, list[Entry]] = {slot: [] for slot in placement.slots}
    slot_of = {q: slot for slot, partitions in machines(placement).items() for q in partitions}
    for group, k in steps:
        for i in range(group * p + 1, min((group + 1) * p, n_trials) + 1):
            partition = (i + k) % p
            plan[slot_of[partition]].append(Entry(i, partition, k))
    return plan
