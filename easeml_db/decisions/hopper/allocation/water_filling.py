"""Water-filling (Fluid, MLSys 2021): devices follow the work that each trial has left.

First the run's trials are timed, then its devices are measured where no profile is known. From then on each trial has a
share of the devices: several of its own, one, or part of one. If partitions are bound to segments, trials must visit
them there, so the run hops instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from easeml_db.decisions.hopper.allocation.contract import Allocation, Choice, NewProfile, Profiles, SlotOffer, Start
from easeml_db.decisions.hopper.allocation.hopping import Hopping
from easeml_db.decisions.hopper.allocation.profiling import Profiling
from easeml_db.decisions.hopper.schedulers.choice import PILOTED, asked_scheduler
from easeml_db.decisions.hopper.work.device_profiler import TrialSlots
from easeml_db.decisions.hopper.work.device_sharing import DeviceSharing
from easeml_db.decisions.hopper.work.gangs import able_slots, gang_of, whole_round
from easeml_db.decisions.hopper.work.pilots import PilotQueue
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.decisions.trial_groups.allocation import AllocationLog
from easeml_db.decisions.trial_groups.measuring import Sample
from easeml_db.words.topology import Device
from easeml_db.words.training_unit import PILOT, TrainingUnit


def water_filling(work: RunWork) -> Allocation:
    """Return water-filling, or hopping where partitions are placed."""
    return Hopping(work) if work.run.holders is not None else WaterFilling(work)


class WaterFilling(Allocation):
    """Pilots that time trials, pilots that measure devices, then units on each trial's share."""

    def __init__(self, work: RunWork) -> None:
        super().__init__(work)
        self.records = self
        self._pilots = PilotQueue(work, lambda trial_id: False)
        self._profiling = Profiling(work)
        self._sharing = DeviceSharing(work)
        self._measuring: set[int] = set()  # trials whose pilot under way measures
        self.renewed()

    def choose(self, offer: SlotOffer) -> Choice:
        """Return what to start now; hold back devices that are being measured, or that a trial has to itself."""
        devices = offer.devices()
        idle = offer.startable({slot for device in devices for slot in device.slot_ids})
        return Choice(self._starts(idle, devices, offer), self.held_slots())

    def held_slots(self) -> frozenset[int]:
        """Return the slots of devices that are measured, or that a trial has to itself."""
        return frozenset(self._sharing.held_slots() | self._profiling.held_slots())

    def _starts(self, idle: Sequence[int], devices: Sequence[Device], offer: SlotOffer) -> list[Start]:
        if self.work.timing or self._pilots.are_wanted():
            return [Start((unit,), (slot,)) for unit, slot in self._pilots.on(idle, offer.placement)]
        shared = self._sharing.look(devices)
        if not self.is_profiled or not shared:
            return []
        assigned = self._profiling.measure(idle, shared)
        if assigned is None:
            assigned = self._sharing.fill(self._profiling.profile(shared), idle)
        return [start for trial_slots in assigned if (start := self._start_of(trial_slots)) is not None]

    def _start_of(self, trial_slots: TrialSlots) -> Start | None:
        """Return the units of a start. A trial whose gangs failed too often continues on one slot."""
        trial_id, slots = trial_slots.trial_id, trial_slots.slot_ids
        trial, able = self.work.trials[trial_id], able_slots(trial_id, trial_slots.slot_ids, self.work.attempts)
        is_whole = self.work.is_whole(trial_id) and not trial_slots.measured_seconds
        gang = whole_round(trial, able[0]) if is_whole else gang_of(trial, able)
        if not trial_slots.measured_seconds:
            return None if gang is None else Start(gang.units, gang.slots)
        if gang is None or len(gang.units) < len(slots):  # too few partitions are left in its round
            self._profiling.pilot_over(trial_id, None)
            return None
        self._measuring.add(trial_id)
        return Start(tuple(replace(unit, kind=PILOT) for unit in gang.units), gang.slots, trial_slots.measured_seconds)

    # What happens to the run

    def renewed(self) -> None:
        """Queue the trials that need a pilot. If a procedure starts trials on the way, nothing waits for those."""
        is_needed = asked_scheduler(self.work.run) in PILOTED or self.work.run.search is None
        self._pilots.restart(is_needed=is_needed)

    def trials_opened(self) -> None:
        """Queue the trials of one more arm for pilots."""
        self.renewed()

    def trial_gone(self, trial_id: int) -> None:
        """Abandon the measurement of the trial's pilot."""
        self.unit_lost(trial_id)

    def recorded(self, units: Sequence[TrainingUnit], seconds: float) -> float | None:
        """Return how long a unit would have taken on a device of its own."""
        trial_id = units[0].trial_id
        on_one_slot = super().recorded(units, seconds)
        n_units = len(units) if on_one_slot is None else 1
        alone = self._sharing.alone_seconds(trial_id, on_one_slot or seconds, n_units=n_units)
        self._sharing.recorded(trial_id)
        return alone

    def piloted(self, trial_id: int, train_seconds: float, sample: Sample | None) -> bool:
        """Record what a pilot measured; a gang's pilot does not show how long a unit takes."""
        if trial_id not in self._measuring:
            return True
        self._measuring.discard(trial_id)
        measured = sample or Sample(trial_id, (), 0)
        self._profiling.pilot_over(trial_id, replace(measured, unit_seconds=train_seconds))
        return sample is not None

    def unit_lost(self, trial_id: int) -> None:
        """Tell the measurement that a pilot of it failed."""
        if trial_id in self._measuring:
            self._measuring.discard(trial_id)
            self._profiling.pilot_over(trial_id, None)

    # What the tables know

    @property
    def is_profiled(self) -> bool:
        """Whether it has received the profiles of earlier runs."""
        return self._profiling.has_profiles

    def set_profiles(self, profiles: Profiles) -> None:
        """Take the profiles of earlier runs."""
        self._profiling.tell(profiles)

    def take_profiles(self) -> list[NewProfile]:
        """Return the profiles measured since the last call."""
        return self._profiling.take_new()

    def take_log(self) -> tuple[AllocationLog, Mapping[int, str]]:
        """Return the decisions since the last call, with a label for each group."""
        return self._sharing.take_log()
