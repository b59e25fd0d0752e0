"""TEMPORARY stand-in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from easeml_db.hopper.contract import Assignment, Cached, Candidate, Placement, Scheduler, Workload

MAX_SIMULATED_UNITS = 20_000


@dataclass(frozen=True)
class Choice:
    name: str
    makespan_seconds: float
    bound_seconds: float
    alternatives: Mapping[str, float]


class Dense:
    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._candidates: dict[int, Candidate] = {}

    def put(self, candidate: Candidate) -> None:
        self._candidates[candidate.trial_id] = candidate

    def take(self, trial_id: int) -> None:
        self._candidates.pop(trial_id, None)

    def choose(self, idle_slots: Sequence[int], cached: Cached | None = None) -> list[Assignment]:
        chosen = []
        for slot in idle_slots:
            fits = [
                (-c.remaining_seconds, (c.trial_number - slot) % len(self._placement.slots), c.trial_id, q)
                for c in self._candidates.values()
                for q in c.partition_numbers
                if self._placement.can_run(slot, q)
            ]
            if fits:
                *_, trial_id, q = min(fits)
                self.take(trial_id)
                chosen.append(Assignment(trial_id, q, slot))
        return chosen


def make_scheduler(name: str, workload: Workload, *, seed: int = 0) -> Scheduler:
    return Dense(workload.placement)


def choose_scheduler(workload: Workload) -> Choice:
    return Choice("longest_remaining", 1.0, 1.0, {"longest_remaining": 1.0, "rotation": 1.0})


def list_schedulers() -> list[tuple[str, bool, bool, bool, str]]:
    return [("auto", False, False, True, "x")]
