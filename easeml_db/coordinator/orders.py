"""The order that starts units: each unit with its seed and its slot."""

from __future__ import annotations

from easeml_db.coordinator.ports.messages import Member, Order
from easeml_db.decisions.hopper.allocation.contract import Start
from easeml_db.words.training_unit import TrainingUnit, unit_seed


def order_of(start: Start, run_seed: int, *, lease_number: int, attempt: int) -> Order:
    """Return the first unit with its slot, and the others of a gang, a whole round or a batch as its members."""
    unit, others = start.unit, zip(start.units[1:], start.slot_by_unit()[1:], strict=True)
    return Order(
        unit,
        _seed_of(unit, run_seed),
        start.slots[0],
        lease_number=lease_number,
        attempt=attempt,
        members=tuple([Member(other, _seed_of(other, run_seed), slot) for other, slot in others]),
        measured_seconds=start.measured_seconds,
    )


def _seed_of(unit: TrainingUnit, run_seed: int) -> int:
    return unit_seed(run_seed, unit.trial_number, unit.epoch, unit.partition_number)
