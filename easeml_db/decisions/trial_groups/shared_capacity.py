"""A plan of resizes under construction: where trials are, which devices are free, and which trials could give some up.

A device that a trial has to itself counts as width 1, also where others may join it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from easeml_db.decisions.trial_groups.contract import DevicePlacement, Resize, RunningTrial
from easeml_db.decisions.trial_groups.profile import Profile


class SharedCapacity:
    """Placements by trial, the free devices, and the resizes so far."""

    def __init__(
        self, running: Sequence[RunningTrial], devices: Sequence[int], profile: Profile, capacities: Mapping[int, int]
    ) -> None:
        self._capacities = {device: min(profile.c, capacities.get(device, profile.c)) for device in devices}
        self._profile, self._seconds = profile, {trial.trial_id: trial.seconds for trial in running}
        self._first = {trial.trial_id: trial.placement for trial in running}
        self.placed = dict(self._first)
        taken = {device for trial in running for device in trial.placement.devices}
        self.idle = [device for device in devices if device not in taken]

    @property
    def changed(self) -> Mapping[int, Resize]:
        """Resizes by trial."""
        moved = {trial: place for trial, place in self.placed.items() if place != self._first[trial]}
        return {trial: Resize(self._first[trial], place) for trial, place in moved.items()}

    def sharers(self, device: int) -> list[int]:
        """Return the packed trials on a device."""
        return [trial for trial, place in self.placed.items() if place.is_packed and place.devices == (device,)]

    def width(self, trial_id: int) -> float:
        """Return the width that it really has: 1/m among m on a device."""
        place = self.placed[trial_id]
        return 1 / len(self.sharers(place.devices[0])) if place.is_packed else place.width

    def seconds(self, trial_id: int, width: float | None = None) -> float:
        """Return h_w of a trial's remaining work, by default at its present width."""
        return self._profile.seconds(self._seconds[trial_id], self.width(trial_id) if width is None else width)

    def own(self, trial_id: int) -> tuple[int, ...]:
        """Return the devices that it has to itself."""
        return self.placed[trial_id].devices if self.width(trial_id) >= 1 else ()

    def widen(self, trial_id: int, width: int) -> None:
        """Give a trial a number of devices: its own, and idle ones, of which there must be enough."""
        kept = self.own(trial_id)
        more = width - len(kept)
        devices = (*kept, *self.idle[:more])
        del self.idle[:more]
        self.placed[trial_id] = DevicePlacement(trial_id, float(width), devices)

    def narrow(self, trial_id: int, width: float) -> None:
        """Leave a trial fewer of its own devices, or put it onto one that has room for it; the others become idle."""
        kept = self.own(trial_id)[: int(width)] if width >= 1 else (self.host(trial_id),)
        self.idle.extend(device for device in self.placed[trial_id].devices if device not in kept)
        self.placed[trial_id] = DevicePlacement(trial_id, width, tuple(device for device in kept if device is not None))

    def host(self, trial_id: int) -> int | None:
        """Return the device of another trial that this one could share, the least loaded; None: there is none."""
        others = {
            place.devices[0] for trial, place in self.placed.items() if place.is_packed and trial != trial_id
        } - set(self.placed[trial_id].devices)  # fmt: skip
        open_ = [device for device in others if len(self.sharers(device)) < self._capacities[device]]
        return min(open_, key=self._load) if open_ else None

    def _load(self, device: int) -> tuple[int, float, int]:
        sharers = self.sharers(device)
        return len(sharers), sum(self._seconds[trial] for trial in sharers), device
