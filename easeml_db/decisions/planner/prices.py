"""What slots cost: instance types, how they are billed, and how long they take to start.

An instance is billed from when the provider has it ready (its initialisation is billed, the wait in the provider's
queue is not) until it is released: by the second, or by the started minute, and for a minimum. If billed by function,
only slots on which something trains are paid, while it trains. Each instance that starts brings in the data once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from easeml_db.decisions.planner.job import Latency, Vector
from easeml_db.errors import InvalidArgument

SECONDS_PER_HOUR = 3600.0
QUANTA: Mapping[str, float] = {"second": 0.0, "minute": 60.0}
DEVICE_KINDS = ("cpu", "cuda")
SCOPES = ("instance", "function")
MAX_SLOTS = 4096  # of a stage
MAX_PRICE = 1e9
MAX_LATENCY_SECONDS = 1e7
MAX_TYPES = 8


@dataclass(frozen=True)
class InstanceType:
    """An instance with `n_slots` slots of one kind of device. `speed`: how much faster a slot is than what was
    measured.

    Raises InvalidArgument.
    """

    name: str
    device_kind: str
    n_slots: int
    price_per_hour: float
    billed_by: str = "second"
    billed_per: str = "instance"
    minimum_seconds: float = 0.0
    price_per_gb: float = 0.0
    queue: Latency = field(default_factory=Latency)
    initialisation: Latency = field(default_factory=Latency)
    max_instances: int | None = None
    speed: float = 1.0

    def __post_init__(self) -> None:
        self._check_choice("device_kind", self.device_kind, DEVICE_KINDS)
        self._check_choice("billed_by", self.billed_by, tuple(QUANTA))
        self._check_choice("billed_per", self.billed_per, SCOPES)
        self._check("n_slots", self.n_slots, 1, MAX_SLOTS)
        self._check("price_per_hour", self.price_per_hour, 0, MAX_PRICE)
        self._check("minimum_seconds", self.minimum_seconds, 0, MAX_LATENCY_SECONDS)
        self._check("price_per_gb", self.price_per_gb, 0, MAX_PRICE)
        for latency in (self.queue, self.initialisation):
            self._check("start latency", max(latency.mean_seconds, latency.sd_seconds), 0, MAX_LATENCY_SECONDS)
        if self.max_instances is not None:
            self._check("max_instances", self.max_instances, 1, 1_000_000)
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise InvalidArgument(f"{self.name}: speed: expected a number above 0, got {self.speed}")
        if self.is_per_function and (self.minimum_seconds or self.billed_by != "second"):
            raise InvalidArgument(
                f"{self.name}: billed per function it is billed by the second and without a minimum",
                hint="Say billed_by second and minimum_seconds 0, or billed_per instance.",
            )

    def _check(self, name: str, value: float, least: float, most: float) -> None:
        if not (math.isfinite(value) and least <= value <= most):
            raise InvalidArgument(f"{self.name}: {name}: expected {least:g} to {most:g}, got {value:g}")

    def _check_choice(self, name: str, value: str, choices: tuple[str, ...]) -> None:
        if value not in choices:
            raise InvalidArgument(f"{self.name}: {name}: expected {' or '.join(choices)}, got {value!r}")

    @property
    def is_per_function(self) -> bool:
        """Whether only slots at work are paid."""
        return self.billed_per == "function"

    @property
    def most_slots(self) -> int:
        """Slots that a stage may have of it."""
        return MAX_SLOTS if self.max_instances is None else min(self.max_instances * self.n_slots, MAX_SLOTS)

    @property
    def price_per_second(self) -> float:
        """Price of an instance for a second."""
        return self.price_per_hour / SECONDS_PER_HOUR

    @property
    def price_per_slot_second(self) -> float:
        """Price of one of its slots for a second."""
        return self.price_per_second / self.n_slots

    def n_instances(self, n_slots: int) -> int:
        """Return how many instances are needed for a number of slots."""
        return -(-n_slots // self.n_slots)

    def billed(self, seconds: Vector) -> Vector:
        """Return the seconds billed for an instance that was ready for some seconds."""
        quantum = QUANTA[self.billed_by]
        # A hair below a whole number of minutes is that number: sums of floats are not exact.
        rounded = np.ceil(seconds / quantum - 1e-9) * quantum if quantum else seconds
        return np.maximum(rounded, self.minimum_seconds)


@dataclass(frozen=True)
class PriceList:
    """Instance types that one plan may use. Raises InvalidArgument."""

    name: str
    types: tuple[InstanceType, ...]
    caveat: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.types) <= MAX_TYPES:
            raise InvalidArgument(
                f"price list {self.name}: expected 1 to {MAX_TYPES} instance types, got {len(self.types)}"
            )
        if len({instance_type.name for instance_type in self.types}) < len(self.types):
            raise InvalidArgument(f"price list {self.name}: expected each instance type once")


def instance_type(row: Mapping[str, Any]) -> InstanceType:
    """Return an instance type from a row of easeml.instance_types. Raises InvalidArgument."""
    return InstanceType(
        row["instance_type"], row["device_kind"], row["n_slots"], row["price_per_hour"], row["billed_by"],
        row["billed_per"], row["minimum_seconds"], row["price_per_gb"],
        Latency(row["queue_seconds"], row["queue_sd_seconds"]),
        Latency(row["start_seconds"], row["start_sd_seconds"]), row["max_instances"], row["speed"],
    )  # fmt: skip
