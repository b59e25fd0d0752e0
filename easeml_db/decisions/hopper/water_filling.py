"""Water-filling for one open run: measurements where a profile is missing, then a share for each trial (trial_groups).

Devices of one kind are shared out, GPUs where there are any. While something is measured, the run starts nothing else,
and the device is kept free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from easeml_db.decisions.hopper.attempts import Attempts
from easeml_db.decisions.hopper.device_profiler import DeviceProfiler, Start
from easeml_db.decisions.hopper.estimates import UnitSeconds
from easeml_db.decisions.trial_groups.allocation import AllocationLog, Allocator, DeviceShare, ready
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile, Measuring, Sample, merged
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.words.run import Run
from easeml_db.words.topology import Device
from easeml_db.words.trial import Trial

LEAST_SECONDS = 1e-6  # of work that is left
PATIENCE = 50  # looks at a device that others keep busy, before a run goes on without a profile
PLAIN = MeasuredProfile(Profile(), 0.0, 1, 1)
Profiles = Mapping[tuple[str, str], MeasuredProfile]


@dataclass(frozen=True)
class NewProfile:
    """What was measured, to be written down."""

    architecture: str
    device_kind: str
    measured: MeasuredProfile


class WaterFilling:
    """Told what is open and idle, it says what starts. It knows nothing of units."""

    def __init__(self, run: Run, estimates: UnitSeconds) -> None:
        self._architectures, self._estimates = run.architectures, estimates
        self._profiles: dict[tuple[str, str], MeasuredProfile] | None = None
        self._new_profiles: list[NewProfile] = []
        self._joint = run.joint_architectures
        self._n_partitions = run.trials[0].n_partitions if run.trials else 1
        self._profile = Profile()  # as of the last shares
        self._allocator = Allocator()
        self._profiler: DeviceProfiler | None = None
        self._tried: set[tuple[str, str]] = set()  # architectures and kinds of devices, measured once at most
        self._n_looks = 0
        self._devices: Sequence[Device] = ()
        self._due_epochs: dict[int, int] = {}
        self._labels: dict[int, str] = {}  # of groups
        self._under_way: dict[int, DeviceShare] = {}
        self._slowdowns: dict[int, float] = {}  # of units under way, against one device of their own
        self._last_slot: dict[int, int] = {}

    # What is known

    @property
    def is_profiled(self) -> bool:
        """Say whether it has been told which profiles are known."""
        return self._profiles is not None

    def set_profiles(self, profiles: Profiles) -> None:
        """Take in the profiles that are known."""
        self._profiles = dict(profiles)

    def set_architectures(self, architectures: Mapping[int, str]) -> None:
        """Take in the architecture of each trial, those that came later among them."""
        self._architectures = architectures

    def alone_seconds(self, trial_id: int, seconds: float, *, n_units: int = 1) -> float:
        """What a unit that took so long, one of `n_units` of a gang, would have taken on a device of its own."""
        if n_units > 1:
            return float(seconds / self._profile.beta ** (n_units - 1))
        return seconds / self._slowdowns.get(trial_id, 1.0)

    def held_slots(self) -> set[int]:
        """Slots that no other run should use: of devices that a trial has to itself, or that are measured."""
        held = {slot for share in self._allocator.shares().values() if not share.is_packed for slot in _slots_of(share)}
        return held | (self._profiler.held_slots() if self._profiler is not None else set())

    def take_profiles(self) -> list[NewProfile]:
        """Profiles measured since the last call."""
        found, self._new_profiles = self._new_profiles, []
        return found

    def take_log(self, n_open: int) -> tuple[AllocationLog, Mapping[int, str]]:
        """What was decided since the last call, with a label for each group; `n_open` trials are still open."""
        if not n_open:
            self._allocator.renew({}, self._devices, Profile(), 0.0)
        return self._allocator.take_log(), self._labels

    # What happens

    def pilot_over(self, trial_id: int, sample: Sample | None) -> None:
        """Take in that a pilot that was to measure is over; None: it failed."""
        if self._profiler is not None:
            self._profiler.over(trial_id, sample)

    def recorded(self, trial_id: int) -> None:
        """Take in that a unit of a trial is recorded."""
        self._allocator.reported(trial_id)

    # What runs next

    def choose(
        self,
        trials: Mapping[int, Trial],
        busy: Mapping[int, int],
        idle_slots: Sequence[int],
        devices: Sequence[Device],
        attempts: Attempts,
    ) -> list[Start]:
        """Return what to start now. `busy`: a slot of each trial under way; `attempts` came to nothing."""
        self._devices = [device for device in devices if device.kind == _kind(devices)]
        self._under_way = {trial: self._share_of(trial, slot) for trial, slot in busy.items()}
        if self._profiles is None or not self._devices:
            return []
        pilots = self._measure(trials, busy, idle_slots)
        if pilots is not None:
            return pilots
        return self._fill(trials, idle_slots, attempts)

    def _share_of(self, trial_id: int, slot: int) -> DeviceShare:
        """The share of a unit under way; of one that somebody else started, the whole device."""
        there = tuple(device for device in self._devices if slot in device.slot_ids)
        return self._under_way.get(trial_id, DeviceShare(trial_id, 1.0, there))

    # Measurements

    def _measure(
        self, trials: Mapping[int, Trial], busy: Mapping[int, int], idle_slots: Sequence[int]
    ) -> list[Start] | None:
        """Pilots to start; [] to wait for some, or for the device; None when all is known."""
        self._end_profiler(trials)
        if self._profiler is None:
            self._profiler = self._next_profiler(trials)
        if self._profiler is None:
            return None
        if self._profiler.is_under_way:
            return []
        asked = self._profiler.next_round()
        is_free = asked is not None and set(self._profiler.slots_for(asked)) <= set(idle_slots)
        if asked is None or not is_free or busy.keys() & set(asked.trial_ids):
            return self._wait()
        self._n_looks = 0
        return self._profiler.begin(asked)

    def _end_profiler(self, trials: Mapping[int, Trial]) -> None:
        """Take up what was measured, once all of it is; begin anew where devices or trials of it are gone."""
        profiler = self._profiler
        if profiler is None or profiler.is_under_way:
            return
        kind, asked = profiler.devices[0].kind, profiler.next_round()
        if not set(profiler.devices) <= set(self._devices) or (asked and not trials.keys() >= set(asked.trial_ids)):
            self._profiler = None
            self._tried.discard((profiler.architecture, kind))
        elif asked is None:
            self._profiler = None
            self._know(profiler.architecture, kind, profiler.measuring.result())
            self._new_profiles.append(NewProfile(profiler.architecture, kind, profiler.measuring.result()))

    def _wait(self) -> list[Start] | None:
        """Wait for a free device, but not for ever: without it, each trial has a device of its own."""
        self._n_looks += 1
        if self._n_looks < PATIENCE or self._profiler is None:
            return []
        self._know(self._profiler.architecture, self._profiler.devices[0].kind, PLAIN)
        self._profiler, self._n_looks = None, 0
        return None

    def _know(self, architecture: str, kind: str, measured: MeasuredProfile) -> None:
        if self._profiles is not None:
            self._profiles[architecture, kind] = measured

    def _next_profiler(self, trials: Mapping[int, Trial]) -> DeviceProfiler | None:
        """The largest device, for the first architecture of which too little is known."""
        device = max(self._devices, key=lambda each: len(each.slot_ids))
        for architecture, mine in self._by_architecture(trials).items():
            n_packed, n_devices = min(len(mine), len(device.slot_ids)), self._most_devices(architecture)
            known = (self._profiles or {}).get((architecture, device.kind))
            is_done = (architecture, device.kind) in self._tried or n_packed == n_devices == 1
            if not is_done and (known is None or not known.covers(n_packed, n_devices)):
                self._tried.add((architecture, device.kind))
                measuring = Measuring(
                    mine, n_slots=len(device.slot_ids), n_devices=n_devices, memory_bytes=device.memory_bytes
                )
                others = [each for each in self._devices if each is not device]
                return DeviceProfiler(architecture, (device, *others), measuring)
        return None

    def _most_devices(self, architecture: str) -> int:
        """A gang has a partition for each device, and trains networks only."""
        return min(len(self._devices), self._n_partitions) if architecture in self._joint else 1

    def _by_architecture(self, trials: Mapping[int, Trial]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for trial_id in sorted(trials):
            found.setdefault(self._architectures[trial_id], []).append(trial_id)
        return found

    # Crews

    def _fill(self, trials: Mapping[int, Trial], idle_slots: Sequence[int], attempts: Attempts) -> list[Start]:
        measured = self._profile_of(trials)
        self._profile = measured.profile
        self._renew(trials, measured)
        shares = self._allocator.shares()

        def rank(trial: int, slot: int) -> tuple[int, ...]:
            return int(attempts.avoided(trial) == slot), int(self._last_slot.get(trial) != slot), slot

        found = []
        for trial, slots in ready(shares, self._under_way, idle_slots, rank):
            self._under_way[trial], self._last_slot[trial] = shares[trial], slots[0]
            found.append(Start(trial, slots))
        for start in found:
            self._slowdowns[start.trial_id] = self._slowdown(shares[start.trial_id], measured.profile)
        return found

    def _profile_of(self, trials: Mapping[int, Trial]) -> MeasuredProfile:
        """One profile for all that is open."""
        kind, known = self._devices[0].kind, self._profiles or {}
        names = self._by_architecture(trials)
        found = [known.get((name, kind), PLAIN).up_to(self._most_devices(name)) for name in names]
        return merged(found) if found else PLAIN

    def _renew(self, trials: Mapping[int, Trial], measured: MeasuredProfile) -> None:
        """Tell the allocator what is open. A trial with a new target comes anew, in another group."""
        again = {t for t, trial in trials.items() if self._due_epochs.get(t, trial.due_epochs) != trial.due_epochs}
        self._due_epochs = {t: trial.due_epochs for t, trial in trials.items()}
        seconds = {t: self._seconds_left(trial) for t, trial in trials.items()}
        self._allocator.renew(seconds, self._devices, measured.profile, measured.eps_seconds, again)
        for group in self._allocator.new_groups():
            self._labels[group.group_number] = self._label([trials[t] for t in group.trial_ids])

    def _seconds_left(self, trial: Trial) -> float:
        return max(self._estimates.remaining(trial, self._architectures[trial.trial_id]), LEAST_SECONDS)

    def _label(self, trials: Sequence[Trial]) -> str:
        names = dict.fromkeys(self._architectures[trial.trial_id] for trial in trials)
        return f"{', '.join(names)} to epoch {max(trial.due_epochs for trial in trials)}"

    def _slowdown(self, share: DeviceShare, profile: Profile) -> float:
        """Of a unit that starts now, beside those that share its device."""
        if not share.is_packed:
            return 1.0
        return profile.slowdown(sum(other.devices == share.devices for other in self._under_way.values()))


def _kind(devices: Sequence[Device]) -> str:
    """GPUs where there are any."""
    return "cuda" if any(device.kind == "cuda" for device in devices) else "cpu"


def _slots_of(share: DeviceShare) -> list[int]:
    return [slot for device in share.devices for slot in device.slot_ids]
