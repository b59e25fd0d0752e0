"""Which slots each gang of a planned run has: on as few instances as possible, and the same from unit to unit.

RubberBand's algorithm 3 (`instance_places.py`) says how many slots of which instance. A trial that it leaves out,
because no instance has room for all of it, gets slots on several instances: a gang spread over instances is slower than
one on a single instance, but faster than none.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from easeml_db.decisions.hopper.work.gangs import gang_slots
from easeml_db.decisions.hopper.work.instance_places import place
from easeml_db.words.trial import Trial

Slots = dict[int, tuple[int, ...]]  # by trial


class GangPlaces:
    """Remembers the slots of gangs."""

    def __init__(self) -> None:
        self._before: Slots = {}

    def share(self, trials: Iterable[Trial], instances: Mapping[int, int], most: int) -> Slots:
        """Return the slots of each trial that gets any, at most `most`; `instances` gives that of each slot.

        Trials that lie on slots stay there, then come those with the lowest numbers."""
        by_number = {trial.trial_id: trial for trial in trials}
        first = heapq.nsmallest(len(instances), by_number.values(), key=lambda trial: trial.trial_number)
        asking = [by_number[trial_id] for trial_id in self._before if trial_id in by_number] + first
        sizes = {trial.trial_id: min(most, trial.n_partitions) for trial in asking}
        before = {trial_id: _counts(slots, instances) for trial_id, slots in self._before.items()}
        placed = place(sizes, before, Counter(instances.values()))
        self._before = _slots_of(placed, self._before, instances)
        taken = {slot for slots in self._before.values() for slot in slots}
        others = [trial for trial in first if trial.trial_id not in placed]
        return self._before | gang_slots(others, sorted(instances.keys() - taken), most)


def _counts(slots: Sequence[int], instances: Mapping[int, int]) -> Mapping[int, int]:
    """Return the number of slots on each instance; slots that are gone do not count."""
    return Counter(instances[slot] for slot in slots if slot in instances)


def _slots_of(placed: Mapping[int, Mapping[int, int]], before: Slots, instances: Mapping[int, int]) -> Slots:
    """Return slots for a number of slots on each instance: a trial on the same instances keeps its slots."""
    stay = {trial: before[trial] for trial in placed if _is_same(before.get(trial, ()), placed[trial], instances)}
    taken = {slot for slots in stay.values() for slot in slots}
    free: dict[int, list[int]] = {}
    for slot in sorted(instances.keys() - taken, reverse=True):
        free.setdefault(instances[slot], []).append(slot)
    moved = {
        trial: tuple(free[number].pop() for number, n in places.items() for _ in range(n))
        for trial, places in placed.items()
        if trial not in stay
    }
    return stay | moved


def _is_same(slots: Sequence[int], places: Mapping[int, int], instances: Mapping[int, int]) -> bool:
    return all(slot in instances for slot in slots) and _counts(slots, instances) == places
