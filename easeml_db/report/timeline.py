"""Recorded units on one axis: active seconds since the first unit's start, with long pauses cut out.

A pause is a time in which no slot ran a unit of the run: between a cancel and a resume, or while no coordinator ran.
Short pauses stay on the axis, because they show idle slots; long ones would leave no room for the units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from easeml_db.report.rows import Row

PAUSE_SECONDS = 5.0
PAUSE_SHARE = 0.1


@dataclass(frozen=True)
class Unit:
    """A recorded unit; begin and end in active seconds."""

    trial_id: int
    kind: str
    epoch: int
    partition_number: int
    slot_id: int
    attempt: int
    begin_seconds: float
    end_seconds: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_seconds - self.begin_seconds


@dataclass(frozen=True)
class Pause:
    """A time that is cut out: its place on the active axis, and its length."""

    at_seconds: float
    seconds: float


@dataclass(frozen=True)
class Timeline:
    """Units in the order of their starts, and the pauses between them; `zero` is the first start, in clock seconds."""

    units: tuple[Unit, ...]
    pauses: tuple[Pause, ...]
    zero: float

    @property
    def active_seconds(self) -> float:
        """From the first start to the last end, without pauses."""
        return max((unit.end_seconds for unit in self.units), default=0.0)

    @property
    def pause_seconds(self) -> float:
        """All that is cut out."""
        return sum(pause.seconds for pause in self.pauses)

    def active(self, clock_seconds: float) -> float:
        """Place an instant on the active axis; an instant in a pause, or outside the axis, goes to the nearest end."""
        return min(_active_seconds(self.pauses, clock_seconds - self.zero), self.active_seconds)


def timeline(rows: Sequence[Row]) -> Timeline:
    """Put rows of query `units` on the active axis."""
    spans = sorted((row["started_seconds"], row["finished_seconds"]) for row in rows)
    zero = spans[0][0] if spans else 0.0
    pauses = _pauses([(begin - zero, end - zero) for begin, end in spans])
    units = [_unit(row, zero, pauses) for row in rows]
    return Timeline(tuple(sorted(units, key=lambda unit: (unit.begin_seconds, unit.end_seconds))), pauses, zero)


def _unit(row: Row, zero: float, pauses: Sequence[Pause]) -> Unit:
    names = ("trial_id", "kind", "epoch", "partition_number", "slot_id", "attempt")
    begin = _active_seconds(pauses, row["started_seconds"] - zero)
    seconds = max(0.0, row["finished_seconds"] - row["started_seconds"])
    return Unit(**{name: row[name] for name in names}, begin_seconds=begin, end_seconds=begin + seconds)


def _pauses(spans: Sequence[tuple[float, float]]) -> tuple[Pause, ...]:
    """Return the gaps longer than PAUSE_SECONDS and than PAUSE_SHARE of the time in which some slot was busy."""
    gaps, reached = [], 0.0
    for begin, end in spans:
        if begin > reached:
            gaps.append((reached, begin - reached))
        reached = max(reached, end)
    shortest = max(PAUSE_SECONDS, PAUSE_SHARE * (reached - sum(seconds for _, seconds in gaps)))
    pauses, cut = [], 0.0
    for at, seconds in gaps:
        if seconds > shortest:
            pauses.append(Pause(at - cut, seconds))
            cut += seconds
    return tuple(pauses)


def _active_seconds(pauses: Sequence[Pause], seconds: float) -> float:
    """Return seconds since the first start as active seconds, at least 0."""
    for pause in pauses:
        if seconds <= pause.at_seconds:
            break
        seconds = max(pause.at_seconds, seconds - pause.seconds)
    return max(0.0, seconds)
