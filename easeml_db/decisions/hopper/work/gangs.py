"""Gangs: trials that train on several slots at once, the slots of each, and the gangs that can start. A whole round is
the units of a gang on one slot.

The trial with the lowest number takes as many slots as it has partitions; then the next trial takes its own. A gang is
one trial on its slots: consecutive units of one round, one on each slot. It starts when all of its slots are idle.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from easeml_db.decisions.hopper.work.attempts import Attempts
from easeml_db.decisions.retry import runs_alone
from easeml_db.words.training_unit import TrainingUnit, next_unit, open_partitions, unit_at
from easeml_db.words.trial import Trial

GangSlots = Mapping[int, tuple[int, ...]]  # by trial

ENOUGH_GANGS = 3  # the first of a session also loads a part of the library


@dataclass(frozen=True)
class Gang:
    """Units of one trial to start now, each on its slot, by rank; one alone is an ordinary unit. Several units on one
    slot are a whole round."""

    units: tuple[TrainingUnit, ...]
    slots: tuple[int, ...]


class Scaling:
    """How much more the gangs of a run do than single units, from the quickest of each width."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, int], list[float]] = {}  # of train rounds, by architecture and width

    def observe(self, architecture: str, n_slots: int, seconds: float) -> None:
        """Record how long a gang trained."""
        self._seconds.setdefault((architecture, n_slots), []).append(seconds)

    def speedup(self, architecture: str, unit_seconds: float) -> float | None:
        """Return how many units the widest gangs do in the time of one; None before enough have shown it."""
        seconds_by_width = {
            n_slots: min(seconds)
            for (name, n_slots), seconds in self._seconds.items()
            if name == architecture and len(seconds) >= ENOUGH_GANGS
        }
        if not seconds_by_width:
            return None
        widest = max(seconds_by_width)
        return widest * unit_seconds / seconds_by_width[widest] if seconds_by_width[widest] > 0 else math.inf


def gang_slots(trials: Iterable[Trial], slots: Sequence[int], most: int | None = None) -> dict[int, tuple[int, ...]]:
    """Give the slots to the trials with the lowest numbers, to each as many as it has partitions, or `most`."""
    shared: dict[int, tuple[int, ...]] = {}
    left = list(slots)
    for trial in heapq.nsmallest(len(left), trials, key=lambda trial: trial.trial_number):
        if not left:
            break
        n = trial.n_partitions if most is None else min(most, trial.n_partitions)
        shared[trial.trial_id], left = tuple(left[:n]), left[n:]
    return shared


def able_slots(trial_id: int, slots: Sequence[int], attempts: Attempts) -> tuple[int, ...]:
    """Return the slots for a trial's next unit: one, where its gangs failed too often."""
    return attempts.another_of(trial_id, slots) if runs_alone(attempts.count(trial_id)) else tuple(slots)


def gangs_to_start(trials: Iterable[Trial], slots: GangSlots, idle: Collection[int]) -> list[Gang]:
    """Return the gangs of those trials whose slots are all idle. Trials in a unit must not be among `trials`."""
    free = set(idle)
    ready = [trial for trial in trials if slots.get(trial.trial_id) and free.issuperset(slots[trial.trial_id])]
    return [gang for trial in ready if (gang := gang_of(trial, slots[trial.trial_id])) is not None]


def gang_of(trial: Trial, slots: Sequence[int]) -> Gang | None:
    """Return a trial's next gang, no wider than what is left of its round; None when nothing is left to do.

    The order of the slots follows the partitions. So a slot meets the same partitions again if the width divides their
    number, and sessions that have exchanged before do so again.
    """
    first = next_unit(trial)
    if first is None:
        return None
    p = trial.n_partitions
    width = min(len(slots), p - trial.n_steps_done % p)
    partitions = _next_partitions(trial, width)
    units = tuple(unit_at(trial, first.step + rank, q) for rank, q in enumerate(partitions))
    return Gang(units, tuple(slots[(partitions[0] + rank) % width] for rank in range(width)))


def whole_round(trial: Trial, slot: int) -> Gang | None:
    """Return all units that are left of a trial's round, on one slot; None when nothing is left to do."""
    every = gang_of(trial, (slot,) * trial.n_partitions)
    return None if every is None else Gang(every.units, (slot,))


def _next_partitions(trial: Trial, n: int) -> list[int]:
    """Return the next partitions of a trial's round, in cyclic order from its turn."""
    if trial.visit_order != "cyclic":
        return list(open_partitions(trial)[:n])
    return [unit_at(trial, trial.n_steps_done + k).partition_number for k in range(n)]
