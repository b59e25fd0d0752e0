"""The device profiles of one run, and the measurements for those that are not known yet.

One architecture is measured at a time, on the largest device. During a measurement the run starts nothing else, and the
device is kept free. If others keep the device busy, the measurement gives up waiting after a while.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from easeml_db.decisions.hopper.allocation.contract import NewProfile, Profiles
from easeml_db.decisions.hopper.work.device_profiler import DeviceProfiler, TrialSlots
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile, Measuring, Sample, merged
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.words.topology import Device

PATIENCE = 50  # looks at a device that others keep busy, before a run continues without a profile
PLAIN = MeasuredProfile(Profile(), 0.0, 1, 1)


class Profiling:
    """Profiles by architecture and kind of device, and the profiler that is at work."""

    def __init__(self, work: RunWork) -> None:
        self._work = work
        self._n_partitions = work.run.trials[0].n_partitions if work.run.trials else 1
        self._profiles: dict[tuple[str, str], MeasuredProfile] | None = None
        self._new: list[NewProfile] = []
        self._profiler: DeviceProfiler | None = None
        self._tried: set[tuple[str, str]] = set()  # architectures and kinds of devices, measured once at most
        self._n_looks = 0

    @property
    def has_profiles(self) -> bool:
        """Whether it has received the profiles of earlier runs."""
        return self._profiles is not None

    def tell(self, profiles: Profiles) -> None:
        """Take the profiles of earlier runs."""
        self._profiles = dict(profiles)

    def take_new(self) -> list[NewProfile]:
        """Return the profiles measured since the last call."""
        new, self._new = self._new, []
        return new

    def held_slots(self) -> set[int]:
        """Return the slots to keep free for measurements."""
        return set() if self._profiler is None else self._profiler.held_slots()

    def profile(self, devices: Sequence[Device]) -> MeasuredProfile:
        """Return one profile for all open trials."""
        kind, profiles = devices[0].kind, self._profiles or {}
        names = self._by_architecture()
        measured = [profiles.get((name, kind), PLAIN).up_to(self._most_devices(name, devices)) for name in names]
        return merged(measured) if measured else PLAIN

    def pilot_over(self, trial_id: int, sample: Sample | None) -> None:
        """Record what a pilot measured; None: it failed."""
        if self._profiler is not None:
            self._profiler.over(trial_id, sample)

    def measure(self, idle_slots: Collection[int], devices: Sequence[Device]) -> list[TrialSlots] | None:
        """Return pilots to start; [] while waiting for pilots or for the device; None when all is known."""
        self._end(devices)
        if self._profiler is None:
            self._profiler = self._next(devices)
        if self._profiler is None:
            return None
        if self._profiler.is_under_way:
            return []
        asked = self._profiler.next_round()
        is_free = asked is not None and set(self._profiler.slots_for(asked)) <= set(idle_slots)
        if asked is None or not is_free or self._work.busy.keys() & set(asked.trial_ids):
            return self._wait()
        self._n_looks = 0
        return self._profiler.begin(asked)

    def _end(self, devices: Sequence[Device]) -> None:
        """Keep the measurements once they are complete; begin again if their devices or trials are gone."""
        profiler = self._profiler
        if profiler is None or profiler.is_under_way:
            return
        kind, asked = profiler.devices[0].kind, profiler.next_round()
        if not set(profiler.devices) <= set(devices) or (asked and set(asked.trial_ids) - self._work.trials.keys()):
            self._profiler = None
            self._tried.discard((profiler.architecture, kind))
        elif asked is None:
            self._profiler = None
            self._know(profiler.architecture, kind, profiler.measuring.result())
            self._new.append(NewProfile(profiler.architecture, kind, profiler.measuring.result()))

    def _wait(self) -> list[TrialSlots] | None:
        """Wait for a free device, up to PATIENCE times; then assume that each trial has a device of its own."""
        self._n_looks += 1
        if self._n_looks < PATIENCE or self._profiler is None:
            return []
        self._know(self._profiler.architecture, self._profiler.devices[0].kind, PLAIN)
        self._profiler, self._n_looks = None, 0
        return None

    def _know(self, architecture: str, kind: str, measured: MeasuredProfile) -> None:
        if self._profiles is not None:
            self._profiles[architecture, kind] = measured

    def _next(self, devices: Sequence[Device]) -> DeviceProfiler | None:
        """Return a profiler on the largest device, for the first architecture of which too little is known."""
        device = max(devices, key=lambda candidate: len(candidate.slot_ids))
        for architecture, mine in self._by_architecture().items():
            n_slots, n_devices = len(device.slot_ids), self._most_devices(architecture, devices)
            if self._is_measured(architecture, device, min(len(mine), n_slots), n_devices):
                continue
            self._tried.add((architecture, device.kind))
            measuring = Measuring(mine, n_slots=n_slots, n_devices=n_devices, memory_bytes=device.memory_bytes)
            others = [other for other in devices if other is not device]
            return DeviceProfiler(architecture, (device, *others), measuring)
        return None

    def _is_measured(self, architecture: str, device: Device, n_packed: int, n_devices: int) -> bool:
        """Return whether nothing is left to measure, or measuring was tried already."""
        if (architecture, device.kind) in self._tried or n_packed == n_devices == 1:
            return True
        profile = (self._profiles or {}).get((architecture, device.kind))
        return profile is not None and profile.covers(n_packed, n_devices)

    def _most_devices(self, architecture: str, devices: Sequence[Device]) -> int:
        """Count the devices that a trial may have: a gang has a partition for each, and trains networks only."""
        return min(len(devices), self._n_partitions) if architecture in self._work.run.joint_architectures else 1

    def _by_architecture(self) -> Mapping[str, list[int]]:
        by_architecture: dict[str, list[int]] = {}
        for trial_id in sorted(self._work.trials):
            by_architecture.setdefault(self._work.architecture(trial_id), []).append(trial_id)
        return by_architecture
