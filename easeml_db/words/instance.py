"""Instances: they bring slots for a planned run, and are paid from when they are ready until they are released."""

from __future__ import annotations

import math
from dataclasses import dataclass

LOCAL = "local"
"""The provisioner that adds slots to this server; all others call programs."""
ALIVE = ("requested", "ready", "releasing")
SECONDS_PER_HOUR = 3600.0
QUANTUM_SECONDS = {"second": 1.0, "minute": 60.0}


@dataclass(frozen=True)
class Programs:
    """Programs with their arguments, and time limits for a call and for getting ready."""

    start: tuple[str, ...]
    probe: tuple[str, ...]
    stop: tuple[str, ...]
    timeout_seconds: float = 60.0
    ready_seconds: float = 900.0


@dataclass(frozen=True)
class Bill:
    """How an instance is billed, as it was agreed when it was requested."""

    price_per_hour: float
    billed_by: str = "second"
    is_per_function: bool = False
    minimum_seconds: float = 0.0
    data_price: float = 0.0

    def cost(self, seconds: float) -> float:
        """Return its cost after some seconds of life; slots at work are billed elsewhere."""
        if self.is_per_function:
            return self.data_price
        quantum = QUANTUM_SECONDS[self.billed_by]
        # A hair below a whole number of minutes is that number: sums of floats are not exact.
        billed = math.ceil(seconds / quantum - 1e-9) * quantum if self.billed_by != "second" else seconds
        return self.data_price + max(billed, self.minimum_seconds) * self.price_per_hour / SECONDS_PER_HOUR


@dataclass(frozen=True)
class Instance:
    """An instance of a run; `status` is one of ALIVE. `billed_seconds`: start of its billing, on the coordinator's
    clock. A releasing instance gets no units, and is stopped once those under way have ended.
    """

    instance_id: int
    run_id: int
    provisioner: str
    instance_type: str
    n_slots: int
    status: str
    request_id: str
    bill: Bill
    device_kind: str = "cpu"
    billed_seconds: float | None = None
    slot_ids: tuple[int, ...] = ()
    programs: Programs | None = None

    def cost_at(self, now_seconds: float) -> float:
        """Return its cost if it ended now."""
        return 0.0 if self.billed_seconds is None else self.bill.cost(max(0.0, now_seconds - self.billed_seconds))
