"""The contract of allocations: the work of a run and the slots on offer go in, starts and slots to hold back come out.

An allocation serves one run. It reads the run's work, and is asked whenever slots are idle. What it starts counts as
begun at once; the slots that it holds back stay idle for it, and younger runs do not get them. It may want fewer slots
than it is offered. The hooks below report the events of the run; most allocations need few of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from easeml_db.decisions.hopper.schedulers.choice import SchedulerChoice
from easeml_db.decisions.hopper.schedulers.contract import Cached, Placement
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.decisions.trial_groups.allocation import AllocationLog
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile, Sample
from easeml_db.words.topology import Device
from easeml_db.words.training_unit import TrainingUnit, open_partitions
from easeml_db.words.trial import Trial

Profiles = Mapping[tuple[str, str], MeasuredProfile]  # by architecture and kind of device


class Start(NamedTuple):
    """Units to start now, each on its slot, by rank: a gang, or a gang of one. Several units on one slot are a whole
    round, or a batch where each is of another trial. With `measured_seconds` they are pilots that repeat iterations for
    so long."""

    units: tuple[TrainingUnit, ...]
    slots: tuple[int, ...]
    measured_seconds: float = 0.0

    @property
    def unit(self) -> TrainingUnit:
        """The unit of rank 0, whose slot identifies the start."""
        return self.units[0]

    def slot_by_unit(self) -> tuple[int, ...]:
        """Return the slot of each unit."""
        return self.slots if len(self.slots) > 1 else self.slots * len(self.units)


@dataclass(frozen=True)
class Choice:
    """An allocation's present choice: starts on idle slots, and slots, idle or not, that no other run may get."""

    starts: Sequence[Start] = ()
    held_slots: frozenset[int] = frozenset()


@dataclass(frozen=True)
class SlotOffer:
    """The slots that a run is offered now.

    `idle` are those that no older run holds back, in order; of these `n_allowed` may begin to work for the tenant
    (None: all), less `n_held` that its runs hold back already. `n_working` counts all slots at work, those whose
    session is just being opened among them. `instances` gives the instance of each slot that is held for the run.
    """

    idle: Sequence[int]
    placement: Placement
    cached: Cached
    n_working: int
    find_slots: Callable[[], Sequence[int]]
    find_devices: Callable[[], Sequence[Device]]
    n_allowed: int | None = None
    n_held: int = 0
    instances: Mapping[int, int] = field(default_factory=dict)

    def startable(self, among: Collection[int] | None = None) -> Sequence[int]:
        """Return the idle slots that may begin to work now; `among`: only of these."""
        idle = self.idle if among is None else [slot for slot in self.idle if slot in among]
        return idle if self.n_allowed is None else idle[: max(0, self.n_allowed - self.n_held)]

    def slots(self) -> Sequence[int]:
        """Return the slots that the run may have, idle or not, as many as its tenant may have: it may wait for them."""
        return self.find_slots()

    def devices(self) -> Sequence[Device]:
        """Return the devices of the slots that the run may have."""
        return self.find_devices()

    def without(self, slots: Collection[int]) -> SlotOffer:
        """Return the offer without these slots, on which something starts or which are held back."""
        if not slots:
            return self
        idle = [slot for slot in self.idle if slot not in slots]
        return replace(self, idle=idle, n_held=self.n_held + len(self.idle) - len(idle))


@dataclass(frozen=True)
class NewProfile:
    """A measured profile of an architecture on a kind of device, to be recorded."""

    architecture: str
    device_kind: str
    measured: MeasuredProfile


class DeviceRecords(Protocol):
    """What an allocation that shares out devices reads from the tables, and records there."""

    @property
    def is_profiled(self) -> bool:
        """Whether it has received the profiles of earlier runs."""

    def set_profiles(self, profiles: Profiles) -> None:
        """Take the profiles of earlier runs."""

    def take_profiles(self) -> list[NewProfile]:
        """Return the profiles measured since the last call."""

    def take_log(self) -> tuple[AllocationLog, Mapping[int, str]]:
        """Return the decisions since the last call, with a label for each group."""


class RunHooks:
    """Events of a run, reported to its allocation. The default of each hook does nothing."""

    def renewed(self) -> None:
        """React to a renewed reading of the run from the tables."""

    def trials_opened(self) -> None:
        """Reckon with the trials of one more arm."""

    def trial_idle(self, trial: Trial) -> None:
        """Count a trial as idle: its last unit is over, and another is due."""

    def trial_gone(self, trial_id: int) -> None:
        """Start nothing of a trial any more."""

    def piloted(self, trial_id: int, train_seconds: float, sample: Sample | None) -> bool:
        """Learn from a pilot; return whether it shows the duration of the trial's units on a slot."""
        return True

    def unit_lost(self, trial_id: int) -> None:
        """Reckon with a trial's unit, or pilot, having failed."""

    def take_scheduler_choice(self) -> SchedulerChoice | None:
        """Return the choice of a scheduler made since the last call, if any."""
        return None


class Allocation(RunHooks, ABC):
    """The allocation of one run."""

    uses_gangs = True
    needs_gangs = False  # whoever asks for it wants gangs, and no hopping instead
    uses_batches = False
    records: DeviceRecords | None = None
    follows_plan = False
    has_reserved_slots = False  # it trains on slots that are held for its run, and on no others

    def __init__(self, work: RunWork) -> None:
        self.work = work

    @abstractmethod
    def choose(self, offer: SlotOffer) -> Choice:
        """Return what to start now, and the slots to hold back."""

    def recorded(self, units: Sequence[TrainingUnit], seconds: float) -> float | None:
        """Learn from units that were recorded together; return the duration of one of them on a slot, or None if they
        do not show it, as in a gang.
        """
        is_on_one_slot = len(units) == 1 or self.work.is_whole(units[0].trial_id)
        return seconds / len(units) if is_on_one_slot else None

    def held_slots(self) -> frozenset[int]:
        """Return the slots to hold back while nothing more is started, but units are under way."""
        return frozenset()

    def follow(self, width: int, *, has_reserved_slots: bool, has_stages: bool = False) -> bool:
        """Give each trial as many slots as the plan says, the run's own or shared ones; return whether that is new.
        `has_stages`: a stage ends with its last trial, so trials with nearer targets go first.
        """
        return False

    def slot_demand(self, placement: Placement, n_working: int) -> int:
        """Count the slots in service that the open trials could have at once: by default one for each trial."""
        trials = self.work.trials
        if placement.holders is None:
            return len(trials)
        whole = {trial_id for trial_id in trials if self.work.is_whole(trial_id)}
        met = {q for trial_id, trial in trials.items() if trial_id not in whole for q in open_partitions(trial)}
        able = placement.slots_for(met) | (placement.slots_for_all() if whole else set())
        return min(len(trials), len(able))
