"""Where units run: segments, which are places that hold partitions, and slots, which are sessions.

A slot carries out one order at a time: a unit, a batch or a whole round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SLOT_STATUSES = ("active", "draining", "lost")


@dataclass(frozen=True)
class Segment:
    """A place that holds partitions and runs units; on the `postgres` engine, the server itself."""

    segment_id: int
    segment_name: str
    engine: str = "postgres"


@dataclass(frozen=True)
class Slot:
    """One session on a segment, bound to one device ('cpu', 'cpu:0', 'cuda:0'); no `memory_limit_bytes`: no limit.

    An `active` slot gets units; a `draining` one ends its unit and gets no more; a `lost` one was given up, because its
    unit could be neither cancelled nor terminated. With a `run_id` it is reserved for that run. `service` names another
    server, if its segment is one.
    """

    slot_id: int
    slot_name: str
    segment_id: int
    device: str = "cpu"
    n_threads: int = 1
    memory_limit_bytes: int | None = None
    status: str = "active"
    run_id: int | None = None
    instance_id: int | None = None
    service: str | None = None

    @property
    def device_name(self) -> str:
        """Its device; slots with the same name share it. 'cpu' alone is a share of the slot's own."""
        of_slot = f" of slot {self.slot_id}" if self.device == "cpu" else ""
        return f"{self.segment_id}/{self.device}{of_slot}"

    @property
    def device_kind(self) -> str:
        """'cpu' or 'cuda'."""
        return self.device.partition(":")[0]


@dataclass(frozen=True)
class Device:
    """A device that slots share: a GPU, or a share of the CPU; `memory_bytes`: the sum of their limits (None: one has
    none).
    """

    name: str
    kind: str
    slot_ids: tuple[int, ...]
    memory_bytes: int | None = None


def devices_of(slots: Iterable[Slot]) -> list[Device]:
    """Group slots by device, in order of their first slot."""
    by_device: dict[str, list[Slot]] = {}
    for slot in sorted(slots, key=lambda slot: slot.slot_id):
        by_device.setdefault(slot.device_name, []).append(slot)
    return [_device(name, sharing) for name, sharing in by_device.items()]


def _device(name: str, slots: list[Slot]) -> Device:
    limits = [slot.memory_limit_bytes for slot in slots]
    byte_limits = [limit for limit in limits if limit is not None]
    memory = sum(byte_limits) if len(byte_limits) == len(limits) else None
    return Device(name, slots[0].device_kind, tuple(slot.slot_id for slot in slots), memory)
