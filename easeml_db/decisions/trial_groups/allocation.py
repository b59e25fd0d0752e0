"""Trial groups of a run that really trains: which trial has which devices now, as trials and slots come and go.

StaticFluid places trials that arrive or have lost their device. DynamicFluid resizes running trials once one has left
or devices have come, and no trial waits. A decision applies from a trial's next unit on; the unit under way continues.

Ours: a device holds as many trials as it has slots, at most c. Whenever something changes, waiting trials are sized
anew for the devices that are then idle, older groups first, because the width that they had on arrival may never be
available again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from easeml_db.decisions.trial_groups.contract import Budget, DevicePlacement, RunningTrial, SizedTrial
from easeml_db.decisions.trial_groups.device_occupancy import DeviceOccupancy
from easeml_db.decisions.trial_groups.dynamic_fluid import Resizing, dynamic_fluid
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.decisions.trial_groups.static_fluid import sized, start
from easeml_db.words.topology import Device


@dataclass(frozen=True)
class DeviceShare(SizedTrial):
    """The devices of a trial's next unit: one slot of each of `devices`; below width 1, sharing that device."""

    devices: tuple[Device, ...]


@dataclass(frozen=True)
class NewGroup:
    """Trials that became runnable together."""

    group_number: int
    trial_ids: tuple[int, ...]


@dataclass(frozen=True)
class ShareChange:
    """A trial gets a share; `reason` is static (it came, or lost its devices) or dynamic (it was resized)."""

    group_number: int
    share: DeviceShare
    reason: str


@dataclass(frozen=True)
class AllocationLog:
    """Decisions to record: groups that arrived, decisions in their order, groups that ended."""

    groups: tuple[NewGroup, ...] = ()
    changes: tuple[ShareChange, ...] = ()
    ended: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.groups or self.changes or self.ended)


def ready(
    shares: Mapping[int, DeviceShare],
    under_way: Mapping[int, DeviceShare],
    idle_slots: Collection[int],
    rank: Callable[[int, int], tuple[int, ...]] = lambda trial, slot: (slot,),
) -> list[tuple[int, tuple[int, ...]]]:
    """Return the trials whose next unit may start now, each with the idle slot of least rank of each of its devices.

    `under_way` gives the shares with which units have started. A trial that has a device to itself waits until the
    units of other trials have left it.
    """
    busy, idle, starts = dict(under_way), set(idle_slots), list[tuple[int, tuple[int, ...]]]()
    for trial, share in shares.items():
        if trial in busy or not all(_is_open(device, share, busy.values()) for device in share.devices):
            continue
        free = [[slot for slot in device.slot_ids if slot in idle] for device in share.devices]
        if all(free):
            slots = tuple(min(device_slots, key=partial(rank, trial)) for device_slots in free)
            idle -= set(slots)
            busy[trial] = share
            starts.append((trial, slots))
    return starts


def _is_open(device: Device, share: DeviceShare, busy: Iterable[DeviceShare]) -> bool:
    """Return whether a unit of this share may start while the units under way run on the device."""
    there = [other for other in busy if any(device.name == used.name for used in other.devices)]
    return not there or (share.is_packed and all(other.is_packed for other in there))


class Allocator:
    """Placements of one run. Given everything that is open, it finds out what arrived, left or changed."""

    def __init__(self, *, min_gain: float = 0.1, min_reports: float = 5) -> None:
        self._min_gain, self._min_reports = min_gain, min_reports
        self._numbers: dict[str, int] = {}  # of devices, by name; never given twice
        self._devices: dict[int, Device] = {}
        self._placed: dict[int, DevicePlacement] = {}
        self._waiting: list[int] = []
        self._seconds: dict[int, float] = {}
        self._n_reports: dict[int, float] = {}
        self._group_of: dict[int, int] = {}
        self._n_groups = 0
        self._profile = Profile()
        self._is_due = False  # a trial may be resized again
        self._new: list[NewGroup] = []
        self._log: list[ShareChange] = []
        self._ended: list[int] = []

    def renew(
        self,
        seconds: Mapping[int, float],
        devices: Sequence[Device],
        profile: Profile,
        eps_seconds: float,
        again: Collection[int] = (),
    ) -> None:
        """Read the open trials with h_1 of their remaining work (above 0) and the existing devices, and decide. Trials
        in `again` were done and have arrived again: they are in another group.
        """
        has_more_devices = self._set_devices(devices)
        has_changed = seconds.keys() != self._seconds.keys() or profile != self._profile or bool(again)
        n_before = len(self._placed)
        self._seconds, self._profile = dict(seconds), profile
        self._forget_others(again)
        has_left = len(self._placed) < n_before
        lost = self._displaced()
        self._take_up(trial for trial in sorted(seconds) if trial not in self._group_of)
        if lost or has_changed or has_more_devices:
            self._waiting += lost
            self._place()
        if (has_left or has_more_devices or lost or self._is_due) and not self._waiting:
            self._resize(Resizing(eps_seconds, self._min_gain, self._min_reports))

    def reported(self, trial_id: int) -> None:
        """Record that a unit of a trial is in the tables."""
        # Infinite for a trial that was never resized: it need not rest first.
        self._n_reports[trial_id] = self._n_reports.get(trial_id, inf) + 1
        self._is_due = self._is_due or self._n_reports[trial_id] == self._min_reports

    def shares(self) -> dict[int, DeviceShare]:
        """Return the share of each trial that has devices, longest trial first."""
        longest = sorted(self._placed, key=lambda trial: (-self._seconds[trial], trial))
        return {trial: self._share(self._placed[trial]) for trial in longest}

    def groups(self) -> dict[int, int]:
        """Return the group of each open trial."""
        return dict(self._group_of)

    def new_groups(self) -> tuple[NewGroup, ...]:
        """Return the groups that came since the log was taken."""
        return tuple(self._new)

    def take_log(self) -> AllocationLog:
        """Return the decisions since the last call."""
        log = AllocationLog(tuple(self._new), tuple(self._log), tuple(self._ended))
        self._new, self._log, self._ended = [], [], []
        return log

    # Trials and devices

    def _set_devices(self, devices: Sequence[Device]) -> bool:
        """Set the devices; return whether there are more than before: another device, or another slot on one."""
        for device in devices:
            self._numbers.setdefault(device.name, len(self._numbers))
        before, self._devices = self._devices, {self._numbers[device.name]: device for device in devices}
        had = {number: len(device.slot_ids) for number, device in before.items()}
        return any(len(device.slot_ids) > had.get(number, 0) for number, device in self._devices.items())

    def _forget_others(self, again: Collection[int]) -> None:
        """Forget the trials that have closed, and those that start again."""
        gone = self._group_of.keys() - (self._seconds.keys() - set(again))
        left = {trial: self._group_of.pop(trial) for trial in gone}
        for trial in left:
            self._placed.pop(trial, None)
            self._n_reports.pop(trial, None)
        self._ended += sorted(set(left.values()) - set(self._group_of.values()))
        self._waiting = [trial for trial in self._waiting if trial in self._group_of]

    def _displaced(self) -> list[int]:
        """Take from trials what they cannot keep: devices that are gone, places beyond capacity, widths above d."""
        n_on: dict[int, int] = {}
        lost = []
        for trial, place in list(self._placed.items()):
            for device in place.devices:
                n_on[device] = n_on.get(device, 0) + 1
            is_there = all(device in self._devices for device in place.devices)
            fits = not place.is_packed or (is_there and n_on[place.devices[0]] <= self._capacities()[place.devices[0]])
            if not (is_there and fits and place.width <= self._profile.d):
                del self._placed[trial]
                self._n_reports.pop(trial, None)
                lost.append(trial)
            elif place.is_packed:
                self._placed[trial] = replace(place, width=self._profile.least_width)
        return lost

    def _take_up(self, trials: Iterable[int]) -> None:
        """Make a group of the trials that come together."""
        if came := list(trials):
            self._n_groups += 1
            self._group_of.update(dict.fromkeys(came, self._n_groups))
            self._new.append(NewGroup(self._n_groups, tuple(came)))
            self._waiting += came

    # Decisions

    def _place(self) -> None:
        """Run StaticFluid for all waiting trials, on idle devices."""
        occupancy = self._occupancy()
        budgets = [Budget(trial, self._seconds[trial]) for trial in self._waiting]
        waiting = sized(budgets, len(occupancy.idle()), self._profile)
        waiting.sort(key=lambda waiting_trial: self._group_of[waiting_trial.budget.trial_id])  # stable
        self._waiting = [waiting_trial.budget.trial_id for waiting_trial in start(occupancy, waiting)]
        for trial, running_trial in occupancy.running.items():
            if trial not in self._placed:
                self._put(running_trial.placement, "static")

    def _resize(self, resizing: Resizing) -> None:
        self._is_due = False
        running = [
            RunningTrial(place, self._seconds[t], self._n_reports.get(t, inf)) for t, place in self._placed.items()
        ]
        resizes = dynamic_fluid(running, sorted(self._devices), self._profile, resizing, capacities=self._capacities())
        for resize in resizes:
            self._put(resize.after, "dynamic")
            self._n_reports[resize.trial_id] = 0.0

    def _put(self, placement: DevicePlacement, reason: str) -> None:
        self._placed[placement.trial_id] = placement
        self._log.append(ShareChange(self._group_of[placement.trial_id], self._share(placement), reason))

    def _occupancy(self) -> DeviceOccupancy:
        occupancy = DeviceOccupancy(sorted(self._devices), self._profile, capacities=self._capacities())
        for trial, place in self._placed.items():
            occupancy.place(Budget(trial, self._seconds[trial]), place)
        return occupancy

    def _capacities(self) -> dict[int, int]:
        return {number: min(len(device.slot_ids), self._profile.c) for number, device in self._devices.items()}

    def _share(self, placement: DevicePlacement) -> DeviceShare:
        devices = tuple(self._devices[number] for number in placement.devices)
        return DeviceShare(placement.trial_id, placement.width, devices)
