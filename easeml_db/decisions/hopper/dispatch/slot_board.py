"""The state of all slots: which may get units, which have a session, which are idle, and what runs on the others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import PILOT, TrainingUnit


class SlotBoard:
    """Slots by number. A slot runs at most one unit, or a whole round or batch at once; a gang keeps all its slots busy
    until it is answered, and is identified by its first slot.
    """

    def __init__(self) -> None:
        self.version = 0  # grows with every change of the slots in service
        self._kept: frozenset[int] = frozenset()  # slots that are to have a session
        self._active: dict[int, Slot] = {}  # slots that may get units
        self._held: frozenset[int] = frozenset()  # of these, those held for some run
        self._cached: dict[int, dict[int, set[int]]] = {}  # partitions by run, by slot with a session
        self._absent: set[int] = set()  # slots whose session cannot be opened, for which nothing waits
        self._idle = _Ordered()  # slots with a session and without a unit that may get one, in order
        self._busy: dict[int, tuple[TrainingUnit, ...]] = {}  # several: those of a whole round or a batch
        self._gangs: dict[int, Sequence[int]] = {}  # slots of gangs, by their first
        self._slots_of: dict[int, dict[int, None]] = {}  # busy slots, by run

    # Slots that come and go

    def keep(self, slots: Iterable[Slot]) -> list[Slot]:
        """Return the slots that need a session: active ones, and draining ones until their unit is answered. Only
        active ones get units, once their session is ready."""
        kept = [s for s in slots if s.status == "active" or (s.status == "draining" and s.slot_id in self._busy)]
        self._active = {slot.slot_id: slot for slot in kept if slot.status == "active"}
        self._held = frozenset(slot.slot_id for slot in self._active.values() if slot.run_id is not None)
        self._kept = frozenset(slot.slot_id for slot in kept)
        for slot_id in self._cached.keys() - self._kept:
            self.gone(slot_id)
        self._idle = _Ordered(slot for slot in self._active if slot in self._cached and slot not in self._busy)
        self.version += 1
        return kept

    def ready(self, slot_id: int) -> None:
        """Put a slot into service: its session is open and has nothing cached. A slot that has been taken away
        meanwhile stays out of service."""
        if slot_id not in self._kept:
            return
        self._cached[slot_id] = {}
        self._absent.discard(slot_id)
        self.version += 1
        if slot_id in self._active and slot_id not in self._busy:
            self._idle.add(slot_id)

    def gone(self, slot_id: int) -> None:
        """Take a slot out of service: its session is gone. Its unit, if any, is under way until it is answered."""
        self._idle.discard(slot_id)
        self._cached.pop(slot_id, None)
        self.version += 1

    def waiting(self, slot_id: int) -> None:
        """Stop waiting for a slot whose session cannot be opened for now."""
        self._absent.add(slot_id)

    # Slots, their units and instances

    def active(self) -> Set[int]:
        """Return the slots that may get units."""
        return self._active.keys()

    def held(self) -> frozenset[int]:
        """Return the slots that are held for some run."""
        return self._held

    def held_for(self, run_id: int) -> frozenset[int]:
        """Return the slots that are held for a run."""
        if not self._held:
            return self._held
        return frozenset(slot_id for slot_id in self._held if self._active[slot_id].run_id == run_id)

    def instances_of(self, run_id: int) -> Mapping[int, int]:
        """Return the instance of each slot that is held for a run."""
        held = self.held_for(run_id)
        return {slot_id: number for slot_id in held if (number := self._active[slot_id].instance_id) is not None}

    def n_busy(self, slot_ids: Iterable[int]) -> int:
        """Count the busy ones among some slots."""
        return sum(slot_id in self._busy for slot_id in slot_ids)

    def n_active(self) -> int:
        """Count the slots that may get units, including those that have no session at this moment."""
        return len(self._active)

    def in_service(self) -> list[Slot]:
        """Return the slots that have a session and may get units."""
        return [slot for slot_id, slot in self._active.items() if slot_id in self._cached]

    def working(self) -> set[int]:
        """Return the busy slots and those whose session is just being opened. Gangs wait for them, so that a briefly
        lost slot does not change the assignment.
        """
        return self._active.keys() - self._absent

    def n_working(self) -> int:
        """Count these slots."""
        return len(self._active) - len(self._active.keys() & self._absent)

    def idle(self, without: Collection[int] = ()) -> Sequence[int]:
        """Return the idle slots in order, less some."""
        return [slot for slot in self._idle.numbers if slot not in without] if without else self._idle.numbers

    def n_pilots(self) -> int:
        """Count the slots that run pilots."""
        return sum(units[0].kind == PILOT for units in self._busy.values())

    def slots_of(self, run_id: int) -> Collection[int]:
        """Return the slots that are busy with a run, in the order of its units."""
        return self._slots_of.get(run_id, {}).keys()

    def busy_runs(self) -> Iterator[tuple[int, Collection[int]]]:
        """Yield (run, its slots) of each run that keeps slots busy."""
        yield from self._slots_of.items()

    def units_of(self, run_id: int) -> dict[int, int]:
        """Return a slot of each trial of a run that is under way, by trial."""
        return {unit.trial_id: slot_id for slot_id in self.slots_of(run_id) for unit in self._busy[slot_id]}

    def training(self, run_id: int) -> list[int]:
        """Return the slots that train trials of a run at this moment, each gang by its first."""
        return [slot_id for slot_id in self.slots_of(run_id) if self._busy[slot_id][0].kind == "train"]

    def cached(self, run_id: int) -> Mapping[int, Collection[int]]:
        """Return the partitions of a run that slots have cached, by slot, as it is at any time."""
        return _CachedPartitions(self._cached, run_id)

    def gang_of(self, slot_id: int) -> Sequence[int]:
        """Return the slots of the unit or gang that this slot identifies."""
        return self._gangs.get(slot_id, (slot_id,))

    # Units

    def forget(self, run_id: int) -> None:
        """Forget what slots have cached of a run that is over."""
        for cached in self._cached.values():
            cached.pop(run_id, None)

    def begin(self, units: Sequence[TrainingUnit], slots: Sequence[int]) -> None:
        """Mark slots as busy with units, each with its own, or one with all of them."""
        parts = [tuple(units)] if len(slots) == 1 else [(unit,) for unit in units]
        for part, slot_id in zip(parts, slots, strict=True):
            run_id = part[0].run_id
            self._idle.discard(slot_id)
            self._busy[slot_id] = part
            self._cached[slot_id].setdefault(run_id, set()).update(unit.partition_number for unit in part)
            self._slots_of.setdefault(run_id, {})[slot_id] = None
        if len(slots) > 1:
            self._gangs[slots[0]] = tuple(slots)

    def answered(self, slot_id: int) -> list[TrainingUnit]:
        """Free the slots of a unit or gang that is over; return its units, by rank."""
        units: list[TrainingUnit] = []
        for busy_slot in self._gangs.pop(slot_id, (slot_id,)):
            units += self._busy.pop(busy_slot)
            if busy_slot in self._cached and busy_slot in self._active:
                self._idle.add(busy_slot)
            slots = self._slots_of[units[-1].run_id]
            del slots[busy_slot]
            if not slots:
                del self._slots_of[units[-1].run_id]
        return units


class _Ordered:
    """Numbers in order, each once."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self.numbers = sorted(set(numbers))

    def add(self, number: int) -> None:
        """Put a number in its place."""
        place = bisect_left(self.numbers, number)
        if self.numbers[place : place + 1] != [number]:
            self.numbers.insert(place, number)

    def discard(self, number: int) -> None:
        """Take a number out."""
        place = bisect_left(self.numbers, number)
        if self.numbers[place : place + 1] == [number]:
            del self.numbers[place]


class _CachedPartitions(Mapping[int, Collection[int]]):
    """A view of what slots have cached of one run."""

    def __init__(self, cached: Mapping[int, Mapping[int, Collection[int]]], run_id: int) -> None:
        self._all, self._run_id = cached, run_id

    def __getitem__(self, slot_id: int) -> Collection[int]:
        return self._all[slot_id].get(self._run_id, ())

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)
