"""Where units run: segments (places that hold partitions) and slots (sessions that run a unit at a time)."""

from __future__ import annotations

from dataclasses import dataclass

SLOT_STATES = ("active", "draining", "lost")


@dataclass(frozen=True)
class Segment:
    """A place that holds partitions and runs units; on the `postgres` engine, the server itself."""

    segment_id: int
    segment_name: str
    engine: str = "postgres"


@dataclass(frozen=True)
class Slot:
    """One session on a segment, bound to one device ('cpu', 'cuda:0'); no `memory_limit_bytes`: no limit.

    An `active` slot gets units; a `draining` one ends its unit and gets no more; a `lost` one was given up, because
    its unit could be neither cancelled nor terminated.
    """

    slot_id: int
    slot_name: str
    segment_id: int
    device: str = "cpu"
    n_threads: int = 1
    memory_limit_bytes: int | None = None
    state: str = "active"
