"""What a coordinator knows and has not recorded yet. It outlives the coordinator if the server goes away."""

from __future__ import annotations

from dataclasses import dataclass, field

from easeml_db.coordinator.ports.messages import UnitFailed


@dataclass
class CarriedOver:
    """Units during which the server crashed, and slot seconds of failed units by tenant."""

    crashed: list[UnitFailed] = field(default_factory=list)
    slot_seconds: dict[str, float] = field(default_factory=dict)
