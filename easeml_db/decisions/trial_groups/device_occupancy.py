"""Devices and what runs on them, as time passes; a trial on a shared device is slowed by those that are really there.

The one mutable thing of this package. Seconds are seconds of the clock, except `RunningTrial.seconds`, which is h_1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from easeml_db.decisions.trial_groups.contract import Budget, DevicePlacement, Resize, RunningTrial, check_distinct
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.errors import InvalidArgument

DONE = 1e-9  # h_1 seconds left that are rounding


class DeviceOccupancy:
    """Devices and the trials on them. `report_seconds`: h_1 between two reports of a trial; `capacities`: most trials
    on a device, where that is less than c."""

    def __init__(
        self,
        devices: Sequence[int],
        profile: Profile,
        *,
        report_seconds: float = inf,
        capacities: Mapping[int, int] | None = None,
    ) -> None:
        check_distinct(devices, "devices")
        self.devices, self.profile, self.running = tuple(devices), profile, dict[int, RunningTrial]()
        self._report_seconds, self._capacities = report_seconds, capacities or {}
        self._stopped: dict[int, float] = {}  # seconds until a resized trial continues
        self._on: dict[int, list[int]] = {device: [] for device in devices}

    def capacity(self, device: int) -> int:
        """Return how many trials may share a device."""
        return min(self.profile.c, self._capacities.get(device, self.profile.c))

    def idle(self) -> list[int]:
        """Return the devices with nothing on them."""
        return [device for device in self.devices if not self._on[device]]

    def shared(self) -> dict[int, list[float]]:
        """Return the devices that others may share: device -> h_1 of the remaining work of each trial there."""
        seconds_by_device: dict[int, list[float]] = {}
        for running_trial in self.running.values():
            if running_trial.placement.is_packed:
                seconds_by_device.setdefault(running_trial.placement.devices[0], []).append(running_trial.seconds)
        return seconds_by_device

    def place(self, budget: Budget, placement: DevicePlacement) -> None:
        """Start a trial. Raises InvalidArgument where its place is taken."""
        self._put(RunningTrial(placement, budget.seconds))

    def resize(self, resizes: Sequence[Resize], seconds: float) -> None:
        """Move trials, all at once; each pauses for a number of seconds."""
        moving = [self._take(resize.trial_id) for resize in resizes]
        for running_trial, resize in zip(moving, resizes, strict=True):
            self._put(RunningTrial(resize.after, running_trial.seconds, 0.0))
            self._stopped[resize.trial_id] = seconds

    def seconds_left(self, trial_id: int) -> float:
        """Count seconds until a trial ends, if everything stays as it is."""
        return self._stopped.get(trial_id, 0.0) + self.running[trial_id].seconds / self._speed(trial_id)

    def seconds_to_end(self) -> float:
        """Count seconds until the next trial ends; infinite where none runs."""
        return min(map(self.seconds_left, self.running), default=inf)

    def advance(self, seconds: float) -> list[int]:
        """Let time pass, at most until the next end; return the trials that ended, which have left."""
        speeds = {trial_id: self._speed(trial_id) for trial_id in self.running}
        for trial_id, speed in speeds.items():
            stopped = min(self._stopped.get(trial_id, 0.0), seconds)
            if stopped:
                self._stopped[trial_id] -= stopped
            running_trial, h_1 = self.running[trial_id], speed * (seconds - stopped)
            n_reports = running_trial.n_reports + h_1 / self._report_seconds
            self.running[trial_id] = replace(running_trial, seconds=running_trial.seconds - h_1, n_reports=n_reports)
        ended = [trial_id for trial_id, running_trial in self.running.items() if running_trial.seconds <= DONE]
        for trial_id in ended:
            self._take(trial_id)
        return ended

    def n_busy(self) -> int:
        """Count the devices with a trial on them."""
        return sum(bool(trials) for trials in self._on.values())

    def _speed(self, trial_id: int) -> float:
        """Return the h_1 seconds done in a second."""
        placement = self.running[trial_id].placement
        if placement.is_packed:
            # alpha^(m-1) for the m trials that are there, not alpha^(c-1) as the width 1/c says.
            return 1 / self.profile.slowdown(len(self._on[placement.devices[0]]))
        return 1 / self.profile.seconds(1.0, placement.width)

    def _put(self, running_trial: RunningTrial) -> None:
        placement = running_trial.placement
        for device in placement.devices:
            limit = self.capacity(device) - 1 if placement.is_packed else 0
            others = [self.running[trial_id].placement for trial_id in self._on[device]]
            if len(others) > limit or not all(other.is_packed for other in others):
                raise InvalidArgument(f"trial {placement.trial_id}: device {device} is taken")
        for device in placement.devices:
            self._on[device].append(placement.trial_id)
        self.running[placement.trial_id] = running_trial

    def _take(self, trial_id: int) -> RunningTrial:
        running_trial = self.running.pop(trial_id)
        self._stopped.pop(trial_id, None)
        for device in running_trial.placement.devices:
            self._on[device].remove(trial_id)
        return running_trial
