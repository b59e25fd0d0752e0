"""Counters of the messages that a coordinator has received since it started, for monitoring."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from easeml_db.coordinator.ports.messages import (
    InstanceFailed,
    Message,
    Piloted,
    RunChanged,
    SlotStuck,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.errors import SlotLost


@dataclass
class Counters:
    """Numbers that only grow while the process lives."""

    units_recorded: int = 0
    unit_seconds: float = 0.0
    units_failed: int = 0
    units_lost: int = 0
    pilots: int = 0
    slots_stuck: int = 0
    runs_changed: int = 0
    instances_failed: int = 0
    longest_turn_seconds: float = 0.0  # of processor time that the loop spent without a look at what had arrived

    def count(self, message: Message) -> None:
        """Count a message."""
        match message:
            case UnitRecorded(order, seconds, _, failures):
                failed = sum(one.unit.trial_id in failures for one in order.by_trial())
                self.units_recorded += len(order.alone()) - failed
                self.units_failed += failed
                self.unit_seconds += seconds * len(order.slot_ids)
            case Piloted():
                self.pilots += 1
            case UnitFailed(_, error):
                self.units_lost += isinstance(error, SlotLost)
                self.units_failed += not isinstance(error, SlotLost)
            case SlotStuck():
                self.slots_stuck += 1
            case RunChanged():
                self.runs_changed += 1
            case InstanceFailed():
                self.instances_failed += 1

    def turn(self, seconds: float) -> None:
        """Note for how long the loop looked at nothing else."""
        self.longest_turn_seconds = max(self.longest_turn_seconds, seconds)

    def values(self) -> dict[str, float]:
        """Return the numbers by their names."""
        return asdict(self)
