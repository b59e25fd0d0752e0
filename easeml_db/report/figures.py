"""Figures computed from a run's units: makespan and its lower bound, utilisation, busy slots over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from easeml_db.decisions.hopper.schedulers.bounds import shared_bound
from easeml_db.report.timeline import Timeline, Unit

KINDS = ("train", "validate", "test")


@dataclass(frozen=True)
class SlotUse:
    """The work of a slot for the run; utilisation is its busy share of the active seconds, between 0 and 1."""

    slot_id: int
    n_units: int
    train_seconds: float
    validate_seconds: float
    test_seconds: float
    busy_seconds: float
    utilisation: float


@dataclass(frozen=True)
class Figures:
    """Figures of the units as recorded; None where there are no units.

    makespan_seconds: first start to last end by the clock; active_seconds: the same without pauses.
    lower_bound_seconds: max(longest trial, total / slots), for slots that all run any unit at the measured times.
    utilisation: busy seconds / (active seconds x slots that ran a unit).
    """

    n_units: int
    n_retried_units: int
    n_slots: int
    busy_seconds: float
    makespan_seconds: float
    active_seconds: float
    pause_seconds: float
    longest_trial_id: int | None
    longest_trial_seconds: float | None
    lower_bound_seconds: float | None
    active_over_bound: float | None
    utilisation: float | None
    slots: tuple[SlotUse, ...]


@dataclass(frozen=True)
class Busy:
    """The mean number of busy slots between two instants, in active seconds."""

    begin_seconds: float
    end_seconds: float
    n_busy: float


def figures(line: Timeline) -> Figures:
    """Compute the figures of a timeline."""
    active = line.active_seconds
    slots = slot_uses(line.units, active)
    trials = trial_seconds(line.units)
    busy = sum(trials.values())
    longest = max(trials, key=lambda trial_id: trials[trial_id], default=None)
    bound = shared_bound(list(trials.values()), len(slots)) if slots else None
    return Figures(
        n_units=len(line.units),
        n_retried_units=sum(unit.attempt > 1 for unit in line.units),
        n_slots=len(slots),
        busy_seconds=busy,
        makespan_seconds=active + line.pause_seconds,
        active_seconds=active,
        pause_seconds=line.pause_seconds,
        longest_trial_id=longest,
        longest_trial_seconds=None if longest is None else trials[longest],
        lower_bound_seconds=bound,
        active_over_bound=active / bound if bound else None,
        utilisation=busy / (active * len(slots)) if slots and active else None,
        slots=slots,
    )


def trial_seconds(units: Sequence[Unit]) -> dict[int, float]:
    """Return busy seconds of each trial."""
    sums: defaultdict[int, float] = defaultdict(float)
    for unit in units:
        sums[unit.trial_id] += unit.seconds
    return dict(sums)


def slot_uses(units: Sequence[Unit], active_seconds: float) -> tuple[SlotUse, ...]:
    """Return the use of each slot that ran a unit, by its number."""
    by_slot: defaultdict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        by_slot[unit.slot_id].append(unit)
    return tuple(_slot_use(slot_id, by_slot[slot_id], active_seconds) for slot_id in sorted(by_slot))


def _slot_use(slot_id: int, units: Sequence[Unit], active_seconds: float) -> SlotUse:
    train, validate, test = (sum(unit.seconds for unit in units if unit.kind == kind) for kind in KINDS)
    busy = sum(unit.seconds for unit in units)
    share = busy / active_seconds if active_seconds else 0.0
    return SlotUse(slot_id, len(units), train, validate, test, busy, share)


def busy_over_time(units: Sequence[Unit], active_seconds: float, n_bins: int = 150) -> list[Busy]:
    """Return the mean number of busy slots in each of `n_bins` equal parts of the active time."""
    if not active_seconds:
        return []
    width = active_seconds / n_bins
    sums = [0.0] * n_bins
    for unit in units:
        for part in range(_part(unit.begin_seconds, width, n_bins), _part(unit.end_seconds, width, n_bins) + 1):
            begin, end = max(unit.begin_seconds, part * width), min(unit.end_seconds, (part + 1) * width)
            sums[part] += max(0.0, end - begin)
    return [Busy(part * width, (part + 1) * width, seconds / width) for part, seconds in enumerate(sums)]


def _part(seconds: float, width: float, n_bins: int) -> int:
    return min(n_bins - 1, max(0, int(seconds / width)))
