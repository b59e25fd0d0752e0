"""Where the slots of trials lie: algorithm 3 of RubberBand. Trials that fit into an instance lie wholly on one, larger
ones take whole instances, and a trial whose allocation is the same stays where it is.

Trials are placed largest first, each on the instance where it leaves the least room. Where none has room, smaller
trials give way and are placed again; those placed in this round, and reserved ones, stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

Places = Mapping[int, Mapping[int, int]]  # by trial: slots on each instance, by its number


def place(
    allocations: Mapping[int, int], before: Places, instances: Mapping[int, int], reserved: Collection[int] = ()
) -> dict[int, dict[int, int]]:
    """Return the place of each trial that has one; a trial without a place waits for the next round.

    `allocations` gives the slots of each trial, `instances` those of each instance by its number; `reserved` names
    trials whose placement has not been confirmed yet.
    """
    packing = _Packing(allocations, before, instances, reserved)
    if all(sum(packing.placed.get(trial, {}).values()) == n for trial, n in allocations.items()):
        return packing.placed
    waiting = [trial for trial in allocations if trial not in packing.placed]
    while waiting and packing.n_free:
        waiting.sort(key=lambda trial: (-allocations[trial], trial))
        waiting += packing.place(waiting.pop(0))
    return packing.placed


class _Packing:
    """The instances while trials are placed on them."""

    def __init__(
        self,
        allocations: Mapping[int, int],
        before: Places,
        instances: Mapping[int, int],
        reserved: Collection[int],
    ) -> None:
        self._allocations, self._n_most = allocations, max(instances.values(), default=1)
        self._free = dict(instances)
        self._fixed = set(reserved)
        self.placed: dict[int, dict[int, int]] = {}
        for trial, places in before.items():
            is_same = sum(places.values()) == allocations.get(trial) and places.keys() <= self._free.keys()
            if is_same or trial in self._fixed:
                self._put(trial, places)

    @property
    def n_free(self) -> int:
        """Free slots."""
        return sum(self._free.values())

    def place(self, trial: int) -> list[int]:
        """Give a trial its slots if there is room; return the trials that gave way. Without room it gets none."""
        unit, missing = min(self._allocations[trial], self._n_most), self._allocations[trial]
        gone: list[int] = []
        if missing > self.n_free + sum(
            self._allocations.get(other, 0) for other in self.placed if self._may_move(other, trial)
        ):
            return gone
        while missing > 0:
            number = self._best_fit(min(unit, missing))
            if number is None:
                number, displaced = self._made_room(trial, min(unit, missing))
                gone += displaced
            if number is None:
                self._remove(trial)
                return gone
            self._put(trial, {number: min(unit, missing)})
            missing -= min(unit, missing)
        self._fixed.add(trial)
        return gone

    def _best_fit(self, n_slots: int) -> int | None:
        fitting = [number for number, free in self._free.items() if free >= n_slots]
        return min(fitting, key=lambda number: (self._free[number], number), default=None)

    def _made_room(self, trial: int, n_slots: int) -> tuple[int | None, list[int]]:
        """Return an instance on which smaller trials give way, and these."""
        for number in sorted(self._free, key=lambda number: (-self._free[number], number)):
            movable = sorted(
                (other for other, places in self.placed.items() if number in places and self._may_move(other, trial)),
                key=lambda other: (self._allocations.get(other, 0), other),
            )
            chosen, free = [], self._free[number]
            for other in movable:
                if free >= n_slots:
                    break
                chosen.append(other)
                free += self.placed[other][number]
            if free >= n_slots:
                for other in chosen:
                    self._remove(other)
                return number, chosen
        return None, []

    def _may_move(self, other: int, trial: int) -> bool:
        is_smaller = self._allocations.get(other, 0) < self._allocations[trial]
        return is_smaller and other != trial and other not in self._fixed

    def _put(self, trial: int, places: Mapping[int, int]) -> None:
        mine = self.placed.setdefault(trial, {})
        for number, n_slots in places.items():
            mine[number] = mine.get(number, 0) + n_slots
            self._free[number] = self._free.get(number, n_slots) - n_slots

    def _remove(self, trial: int) -> None:
        for number, n_slots in self.placed.pop(trial, {}).items():
            self._free[number] += n_slots
