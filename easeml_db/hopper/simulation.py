"""Runs a scheduler on known unit times without a machine: a discrete-event simulation.

Slots are interchangeable and unit times fixed. A scheduler is asked whenever a slot is idle and a trial is
too; units that end at the same instant are all taken in before it is asked.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from easeml_db.errors import InvalidArgument
from easeml_db.hopper.longest_remaining import Assignment, Board, Cached, Candidate


class Scheduler(Protocol):
    """What the simulation asks; `Board` is one."""

    def put(self, candidate: Candidate) -> None: ...

    def choose(self, idle_slots: Sequence[int], cached: Cached | None = None) -> list[Assignment]: ...


@dataclass(frozen=True)
class KnownTrial:
    """A trial whose units are known: seconds and partition of each, in the order in which they must run."""

    trial_id: int
    run_id: int
    trial_number: int
    unit_seconds: tuple[float, ...]
    partition_numbers: tuple[int, ...]


@dataclass(frozen=True)
class PlacedUnit:
    """Step `step` of a trial on a slot, from start to end; `was_cached`: the slot had met the partition."""

    trial_id: int
    step: int
    partition_number: int
    slot_id: int
    start_seconds: float
    end_seconds: float
    was_cached: bool


@dataclass(frozen=True)
class Schedule:
    """All units in order of their start."""

    units: tuple[PlacedUnit, ...]

    @property
    def makespan_seconds(self) -> float:
        return max((unit.end_seconds for unit in self.units), default=0.0)


def simulate(trials: Sequence[KnownTrial], n_slots: int, scheduler: Scheduler | None = None) -> Schedule:
    """Run all trials to their end on slots 0 to n_slots - 1; the default scheduler is longest remaining."""
    if n_slots < 1:
        raise InvalidArgument(f"n_slots: expected at least 1, got {n_slots}")
    simulation = _Simulation(trials, n_slots, Board(n_slots) if scheduler is None else scheduler)
    return Schedule(tuple(simulation.run()))


class _Simulation:
    def __init__(self, trials: Sequence[KnownTrial], n_slots: int, scheduler: Scheduler) -> None:
        self._trials = {trial.trial_id: trial for trial in trials}
        self._remaining = {trial.trial_id: _remaining_after(trial.unit_seconds) for trial in trials}
        self._n_done = dict.fromkeys(self._trials, 0)
        self._scheduler = scheduler
        self._idle_slots = list(range(n_slots))
        self._cached: dict[int, set[tuple[int, int]]] = {slot: set() for slot in self._idle_slots}
        self._running: list[tuple[float, int, int]] = []  # a heap of (end, slot, trial)
        self._placed: list[PlacedUnit] = []

    def run(self) -> list[PlacedUnit]:
        for trial_id in self._trials:
            self._offer(trial_id)
        self._start_units(0.0)
        while self._running:
            now_seconds = self._running[0][0]
            while self._running and self._running[0][0] == now_seconds:
                self._end_unit()
            self._start_units(now_seconds)
        return self._placed

    def _offer(self, trial_id: int) -> None:
        """Hand an idle trial to the scheduler, unless nothing of it is left."""
        trial, step = self._trials[trial_id], self._n_done[trial_id]
        if step < len(trial.unit_seconds):
            self._scheduler.put(
                Candidate(
                    trial_id=trial_id,
                    run_id=trial.run_id,
                    trial_number=trial.trial_number,
                    partition_number=trial.partition_numbers[step],
                    remaining_seconds=self._remaining[trial_id][step],
                )
            )

    def _start_units(self, now_seconds: float) -> None:
        for assignment in self._scheduler.choose(sorted(self._idle_slots), self._cached):
            self._start_unit(assignment, now_seconds)

    def _start_unit(self, assignment: Assignment, now_seconds: float) -> None:
        trial, slot = self._trials[assignment.trial_id], assignment.slot_id
        step = self._n_done[trial.trial_id]
        partition = trial.partition_numbers[step]
        end = now_seconds + trial.unit_seconds[step]
        was_cached = (trial.run_id, partition) in self._cached[slot]
        self._placed.append(PlacedUnit(trial.trial_id, step, partition, slot, now_seconds, end, was_cached=was_cached))
        self._cached[slot].add((trial.run_id, partition))
        self._idle_slots.remove(slot)
        heapq.heappush(self._running, (end, slot, trial.trial_id))

    def _end_unit(self) -> None:
        _, slot, trial_id = heapq.heappop(self._running)
        self._n_done[trial_id] += 1
        self._idle_slots.append(slot)
        self._offer(trial_id)


def _remaining_after(unit_seconds: Sequence[float]) -> list[float]:
    """Return the seconds left before each step; equal trials get exactly equal values."""
    return list(accumulate(reversed(unit_seconds)))[::-1]
