"""Which devices each trial of a run has now, and which trials can start on idle slots of their devices (trial_groups).

It shares out devices of one kind: GPUs if there are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from easeml_db.decisions.hopper.work.device_profiler import TrialSlots
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.decisions.trial_groups.allocation import AllocationLog, Allocator, DeviceShare, ready
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.words.topology import Device
from easeml_db.words.trial import Trial

LEAST_SECONDS = 1e-6  # of work that is left


class DeviceSharing:
    """Shares of devices, and the slots that units under way have of them."""

    def __init__(self, work: RunWork) -> None:
        self._work = work
        self._allocator = Allocator()
        self._profile = Profile()  # as of the last shares
        self._devices: Sequence[Device] = ()
        self._due_epochs: dict[int, int] = {}
        self._labels: dict[int, str] = {}  # of groups
        self._under_way: dict[int, DeviceShare] = {}
        self._slowdowns: dict[int, float] = {}  # of units under way, against one device of their own
        self._last_slot: dict[int, int] = {}

    def held_slots(self) -> set[int]:
        """Return the slots of devices that a trial has to itself: no other run is to use them."""
        shares = self._allocator.shares().values()
        return {slot for share in shares if not share.is_packed for device in share.devices for slot in device.slot_ids}

    def take_log(self) -> tuple[AllocationLog, Mapping[int, str]]:
        """Return the decisions since the last call, with a label for each group."""
        if not self._work.trials:
            self._allocator.renew({}, self._devices, Profile(), 0.0)
        return self._allocator.take_log(), self._labels

    def alone_seconds(self, trial_id: int, seconds: float, *, n_units: int = 1) -> float:
        """Return how long a unit, one of `n_units` of a gang, would have taken on a device of its own."""
        if n_units > 1:
            return float(seconds / self._profile.beta ** (n_units - 1))
        return seconds / self._slowdowns.get(trial_id, 1.0)

    def recorded(self, trial_id: int) -> None:
        """Count a unit of a trial as reported."""
        self._allocator.reported(trial_id)

    def look(self, devices: Sequence[Device]) -> Sequence[Device]:
        """Read the existing devices and the units under way; return the devices that are shared out."""
        kind = "cuda" if any(device.kind == "cuda" for device in devices) else "cpu"
        self._devices = [device for device in devices if device.kind == kind]
        self._under_way = {trial: self._share_of(trial, slot) for trial, slot in self._work.busy.items()}
        return self._devices

    def fill(self, measured: MeasuredProfile, idle_slots: Sequence[int]) -> list[TrialSlots]:
        """Return the trials whose next unit can start now, each with its slots."""
        self._profile = measured.profile
        self._renew(measured)
        shares = self._allocator.shares()
        starts = []
        for trial, slots in ready(shares, self._under_way, idle_slots, self._rank):
            self._under_way[trial], self._last_slot[trial] = shares[trial], slots[0]
            starts.append(TrialSlots(trial, slots))
        for start in starts:
            self._slowdowns[start.trial_id] = self._slowdown(shares[start.trial_id], measured.profile)
        return starts

    def _rank(self, trial_id: int, slot: int) -> tuple[int, ...]:
        """Sort the slots of a device: avoid the slot of the trial's last failed attempt, prefer the slot where it was
        last.
        """
        is_avoided = self._work.attempts.avoided(trial_id) == slot
        return int(is_avoided), int(self._last_slot.get(trial_id) != slot), slot

    def _share_of(self, trial_id: int, slot: int) -> DeviceShare:
        """Return the share of a unit under way; the whole device for a unit that another allocation started."""
        there = tuple(device for device in self._devices if slot in device.slot_ids)
        return self._under_way.get(trial_id, DeviceShare(trial_id, 1.0, there))

    def _renew(self, measured: MeasuredProfile) -> None:
        """Update the allocator with the open trials. A trial with a new target arrives again, in another group."""
        trials = self._work.trials
        again = {t for t, trial in trials.items() if self._due_epochs.get(t, trial.due_epochs) != trial.due_epochs}
        self._due_epochs = {t: trial.due_epochs for t, trial in trials.items()}
        seconds = {t: max(self._work.remaining_seconds(trial), LEAST_SECONDS) for t, trial in trials.items()}
        self._allocator.renew(seconds, self._devices, measured.profile, measured.eps_seconds, again)
        for group in self._allocator.new_groups():
            self._labels[group.group_number] = self._label([trials[t] for t in group.trial_ids])

    def _label(self, trials: Sequence[Trial]) -> str:
        names = dict.fromkeys(self._work.architecture(trial.trial_id) for trial in trials)
        return f"{', '.join(names)} to epoch {max(trial.due_epochs for trial in trials)}"

    def _slowdown(self, share: DeviceShare, profile: Profile) -> float:
        """Return the slowdown of a unit that starts now, from the units that share its device."""
        if not share.is_packed:
            return 1.0
        return profile.slowdown(sum(other.devices == share.devices for other in self._under_way.values()))
