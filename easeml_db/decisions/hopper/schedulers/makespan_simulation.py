"""Runs a scheduler on known unit times without a machine: a discrete-event simulation.

A scheduler is asked whenever a slot is idle and a trial is too; all units that end at the same instant are processed
before it is asked.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from easeml_db.decisions.hopper.schedulers.bounds import workload_bound
from easeml_db.decisions.hopper.schedulers.contract import Assignment, Candidate, Scheduler, Workload, lead_of
from easeml_db.errors import InvalidArgument
from easeml_db.words.training_unit import partition_at


@dataclass(frozen=True)
class PlacedUnit:
    """A trial over a partition in a round, from start to end; `was_cached`: the slot had met the partition."""

    trial_number: int
    round_number: int
    position: int
    partition_number: int
    slot_id: int
    start_seconds: float
    end_seconds: float
    was_cached: bool


@dataclass(frozen=True)
class Schedule:
    """All units in order of their start; the makespan is reported beside a bound that no schedule beats."""

    units: tuple[PlacedUnit, ...]
    bound_seconds: float
    n_decisions: int

    @property
    def makespan_seconds(self) -> float:
        """Seconds from the first start to the last end."""
        return max((unit.end_seconds for unit in self.units), default=0.0)


def simulate(workload: Workload, scheduler: Scheduler) -> Schedule:
    """Run all trials of a workload to their end."""
    if not workload.placement.slots:
        raise InvalidArgument("a simulation needs at least one slot")
    return _Simulation(workload, scheduler).run()


class _Simulation:
    """Trials by number, from 1."""

    def __init__(self, workload: Workload, scheduler: Scheduler) -> None:
        self._workload, self._scheduler = workload, scheduler
        self._p = workload.placement.n_partitions
        self._best = [_at_best(workload, i + 1) for i in range(len(workload.unit_seconds))]
        self._round_seconds = [sum(row) for row in self._best]
        n = len(workload.unit_seconds)
        self._round, self._met = [0] * n, [set[int]() for _ in range(n)]
        self._idle = set(workload.placement.slots)
        self._cached: dict[int, set[int]] = {slot: set() for slot in self._idle}
        self._running: list[tuple[float, int, int, int]] = []  # a heap of (end, slot, trial, partition)
        self._placed: list[PlacedUnit] = []
        self._n_decisions = 0

    def run(self) -> Schedule:
        """Play until nothing runs; a scheduler that leaves work undone has a fault."""
        for number in range(1, len(self._round) + 1):
            self._offer(number)
        self._start_units(0.0)
        while self._running:
            now_seconds = self._running[0][0]
            while self._running and self._running[0][0] == now_seconds:
                self._end_unit()
            self._start_units(now_seconds)
        if any(round_ < self._workload.n_rounds for round_ in self._round):
            raise RuntimeError("the scheduler left trials idle for ever")
        return Schedule(tuple(self._placed), workload_bound(self._workload), self._n_decisions)

    def _offer(self, number: int) -> None:
        """Hand an idle trial to the scheduler, unless nothing of it is left."""
        i = number - 1
        rounds_left = self._workload.n_rounds - self._round[i]
        if rounds_left == 0:
            self._scheduler.take(number)
            return
        open_ = self._open(number)
        remaining = (rounds_left - 1) * self._round_seconds[i] + self._round_left(i)
        lead = lead_of(self._round[i], is_limited=False)
        self._scheduler.put(Candidate(number, number, self._round[i], open_, remaining, lead=lead))

    def _round_left(self, i: int) -> float:
        """Count the seconds left in this round; equal trials get exactly equal values."""
        met = self._met[i]
        if not met:
            return self._round_seconds[i]
        return sum(seconds for q, seconds in enumerate(self._best[i]) if q not in met)

    def _open(self, number: int) -> tuple[int, ...]:
        met = self._met[number - 1]
        turn = partition_at(number, len(met), self._p)
        if self._workload.visit_order == "cyclic":
            return (turn,)
        return tuple(q for q in ((turn + k) % self._p for k in range(self._p)) if q not in met)

    def _start_units(self, now_seconds: float) -> None:
        if not self._idle:
            return
        assignments = self._scheduler.choose(sorted(self._idle), self._cached)
        self._n_decisions += len(assignments)
        for assignment in assignments:
            self._start_unit(assignment, now_seconds)

    def _start_unit(self, assignment: Assignment, now_seconds: float) -> None:
        number, slot, partition = assignment.trial_id, assignment.slot_id, assignment.partition_number
        end = now_seconds + self._workload.seconds(number, partition, slot)
        place = self._round[number - 1], len(self._met[number - 1])
        was_cached = partition in self._cached[slot]
        self._placed.append(PlacedUnit(number, *place, partition, slot, now_seconds, end, was_cached))
        self._cached[slot].add(partition)
        self._idle.discard(slot)
        heapq.heappush(self._running, (end, slot, number, partition))

    def _end_unit(self) -> None:
        _, slot, number, partition = heapq.heappop(self._running)
        met = self._met[number - 1]
        met.add(partition)
        if len(met) == self._p:
            met.clear()
            self._round[number - 1] += 1
        self._idle.add(slot)
        self._offer(number)


def _at_best(workload: Workload, number: int) -> list[float]:
    """Return a trial's unit times on the fastest slot that can run them, shape (p,)."""
    placement = workload.placement
    if placement.holders is None:
        slots = placement.slots
        best = max(workload.speeds.get(slot, 1.0) for slot in slots)
        return [seconds / best for seconds in workload.unit_seconds[number - 1]]
    return [
        min(workload.seconds(number, q, slot) for slot in placement.slots if placement.can_run(slot, q))
        for q in range(placement.n_partitions)
    ]
