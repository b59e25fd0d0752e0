"""Which short measurements to make on real slots, one after another, and the profile that they give (Fluid, 4.2.2).

A round is some pilots at once: first a trial alone on a device, then p trials together on that device for p = 2, 3, ...
until the p-th brings too little or finds no memory, then one trial over w = 2, 3, ... devices until it grows no
faster. A pilot repeats iterations over the same rows and says when each ended.

Ours: trials of one group may differ in size, so each is measured alone as well, and T^p counts in units of that: the
mean slowdown of p trials. Only iterations while all pilots of a round trained count; a round that hardly overlapped is
thrown away and repeated, at most three times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from easeml_db.decisions.retry import MAX_ATTEMPTS
from easeml_db.decisions.trial_groups.limits import (
    THRESHOLD,
    packing_benefit,
    packing_limit,
    packing_overhead,
    scaling_limit,
    scaling_overhead,
)
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.errors import InvalidArgument

MIN_ITERATIONS = 3
MIN_OVERLAP = 0.5  # of the shortest pilot of a round


@dataclass(frozen=True)
class Round:
    """Pilots to run at once: these trials on one device, or one trial over `n_devices`."""

    trial_ids: tuple[int, ...]
    n_devices: int = 1


@dataclass(frozen=True)
class Sample:
    """The result of a pilot: `iteration_ends` is when it began and when each iteration over `n_rows` rows ended, in
    seconds on one clock.

    `unit_seconds`: expected duration of a unit of the trial, or of a gang over a partition for each device.
    `open_seconds`: time to bring the trial onto its slot. `trial_bytes`: the most memory that it took, and
    `device_bytes`: the memory of the device, if known.
    """

    trial_id: int
    iteration_ends: tuple[float, ...]
    n_rows: int
    open_seconds: float = 0.0
    trial_bytes: int | None = None
    device_bytes: int | None = None
    unit_seconds: float = 0.0


@dataclass(frozen=True)
class MeasuredProfile:
    """A profile with eps, the cost of a resize in seconds, and the measurements behind it: `measurements`, as JSON
    values.

    `n_packed` trials on a device and `n_devices` for a trial were tried at most; `is_bounded` says that packing ended
    because more would not have paid or fitted, and not because there were no more slots or trials.
    """

    profile: Profile
    eps_seconds: float
    n_packed: int
    n_devices: int
    is_bounded: bool = False
    measurements: Mapping[str, Any] = field(default_factory=dict)

    def covers(self, n_packed: int, n_devices: int) -> bool:
        """Return whether nothing is left to measure for a number of trials on a device, and of devices for a trial."""
        is_scaled = n_devices <= self.n_devices or self.profile.d < self.n_devices
        return (self.is_bounded or n_packed <= self.n_packed) and is_scaled

    def up_to(self, n_devices: int) -> MeasuredProfile:
        """Return the same profile for trials with at most a number of devices."""
        profile = self.profile
        return replace(self, profile=replace(profile, d=min(profile.d, n_devices)))


class Measuring:
    """The measurements of one architecture on one kind of device: given results, it returns what to run next."""

    def __init__(
        self,
        trial_ids: Sequence[int],
        *,
        n_slots: int,
        n_devices: int = 1,
        threshold: float = THRESHOLD,
        memory_bytes: int | None = None,
    ) -> None:
        """Begin with `trial_ids`, at least one; `n_slots` of the device; `n_devices` that a trial may have.

        Raises InvalidArgument.
        """
        if not trial_ids or n_slots < 1 or n_devices < 1:
            raise InvalidArgument("measuring: expected at least one trial, one slot and one device")
        self._trials, self._threshold = tuple(trial_ids), threshold
        self._most_packed, self._most_devices = min(len(trial_ids), n_slots), n_devices
        self._device_bytes, self._trial_bytes = memory_bytes, 0
        self._alone: dict[int, float] = {}  # seconds per row
        self._unit_seconds: dict[int, float] = {}
        self._slowdowns: list[list[float]] = [[1.0]]
        self._speedups: list[float] = [1.0]
        self._open_seconds: list[float] = []
        self._is_packing_over = self._is_scaling_over = self._is_bounded = False
        self._n_attempts = self._n_discarded = 0

    def next_round(self) -> Round | None:
        """Return what to run now; None when all is known."""
        p, w = len(self._slowdowns) + 1, len(self._speedups) + 1
        alone = [trial for trial in self._trials[: max(1, self._n_needed(p))] if trial not in self._alone]
        if alone:
            return Round((alone[0],))
        if self._n_needed(p):
            return Round(self._trials[:p])
        if not self._is_scaling_over and w <= self._most_devices:
            return Round(self._trials[:1], w)
        return None

    def record(self, asked: Round, samples: Sequence[Sample]) -> None:
        """Record the result of a round; samples of pilots that failed are missing."""
        self._remember(samples)
        if asked.n_devices > 1:
            self._record_gang(asked, samples)
            return
        rates = _seconds_per_row(samples) if len(samples) == len(asked.trial_ids) else None
        if rates is None:
            self._discard(asked)
            return
        self._n_attempts = 0
        if len(asked.trial_ids) == 1:
            self._alone |= rates
            self._unit_seconds |= {sample.trial_id: sample.unit_seconds for sample in samples}
        else:
            self._packed([rates[trial] / self._alone[trial] for trial in asked.trial_ids])

    def result(self) -> MeasuredProfile:
        """Return the profile that the measurements so far give."""
        trial_bytes = self._trial_bytes or None
        # What a trial has really taken did fit, whatever was said of the device.
        device_bytes = max(self._device_bytes, self._trial_bytes) if self._device_bytes is not None else None
        c = packing_limit(
            self._slowdowns, threshold=self._threshold, trial_bytes=trial_bytes, device_bytes=device_bytes
        )
        d = scaling_limit(self._speedups)
        profile = Profile(packing_overhead(self._slowdowns, c), scaling_overhead(self._speedups, d), c, d)
        eps = fmean(self._open_seconds) if self._open_seconds else 0.0
        return MeasuredProfile(
            profile, eps, len(self._slowdowns), len(self._speedups), self._is_bounded, self._measurements()
        )

    def _n_needed(self, p: int) -> int:
        """Return how many trials to pack next; 0: no more."""
        if self._is_packing_over or p > self._most_packed:
            return 0
        if self._device_bytes is not None and p * self._trial_bytes > self._device_bytes:
            self._is_packing_over = self._is_bounded = True
            return 0
        return p

    def _packed(self, slowdowns: list[float]) -> None:
        p = len(slowdowns)
        benefit = packing_benefit(p, slowdowns, self._slowdowns[-1])
        self._slowdowns.append(slowdowns)
        if benefit <= self._threshold:
            self._is_packing_over = self._is_bounded = True

    def _record_gang(self, asked: Round, samples: Sequence[Sample]) -> None:
        """Record how much a gang gains: over w devices it does w units at once."""
        alone = self._unit_seconds.get(asked.trial_ids[0], 0.0)
        if len(samples) != 1 or samples[0].unit_seconds <= 0 or alone <= 0:
            self._discard(asked)
            return
        self._n_attempts = 0
        speedup = asked.n_devices * alone / samples[0].unit_seconds
        self._is_scaling_over = speedup <= self._speedups[-1]
        self._speedups.append(speedup)

    def _discard(self, asked: Round) -> None:
        """Repeat a round, or do without its result."""
        self._n_attempts += 1
        self._n_discarded += 1
        if self._n_attempts < MAX_ATTEMPTS:
            return
        self._n_attempts = 0
        if asked.n_devices > 1:
            self._is_scaling_over = True
        elif len(asked.trial_ids) > 1:
            self._is_packing_over = self._is_bounded = True
        else:  # without its time alone nothing of this trial can be measured
            self._trials = tuple(trial for trial in self._trials if trial != asked.trial_ids[0])
            self._most_packed = min(self._most_packed, len(self._trials))
            self._is_packing_over = self._is_packing_over or not self._trials
            self._is_scaling_over = self._is_scaling_over or not self._trials

    def _remember(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            if not sample.iteration_ends:
                continue
            self._open_seconds.append(sample.open_seconds)
            self._trial_bytes = max(self._trial_bytes, sample.trial_bytes or 0)
            if sample.device_bytes is not None:
                self._device_bytes = min(self._device_bytes or sample.device_bytes, sample.device_bytes)

    def _measurements(self) -> dict[str, Any]:
        return {
            "slowdowns": self._slowdowns,
            "speedups": self._speedups,
            "seconds_per_row": list(self._alone.values()),
            "open_seconds": self._open_seconds,
            "trial_bytes": self._trial_bytes or None,
            "device_bytes": self._device_bytes,
            "threshold": self._threshold,
            "n_discarded": self._n_discarded,
        }


def merged(measured: Sequence[MeasuredProfile]) -> MeasuredProfile:
    """Make one profile for several architectures: the lowest limits, the highest overheads. InvalidArgument."""
    if not measured:
        raise InvalidArgument("profiles: expected at least one, got none")
    profiles = [m.profile for m in measured]
    alpha, beta = max(p.alpha for p in profiles), max(p.beta for p in profiles)
    # A valid profile: the bounds c/(c-1) and 1 + 1/d of the overheads only rise as c and d fall.
    profile = Profile(alpha, beta, min(p.c for p in profiles), min(p.d for p in profiles))
    eps = max(m.eps_seconds for m in measured)
    return MeasuredProfile(profile, eps, min(m.n_packed for m in measured), min(m.n_devices for m in measured))


def _seconds_per_row(samples: Sequence[Sample]) -> dict[int, float] | None:
    """Return seconds a row by trial, while all trained; None where they hardly overlapped."""
    begin, end = (
        max(sample.iteration_ends[0] for sample in samples),
        min(sample.iteration_ends[-1] for sample in samples),
    )
    shortest = min(sample.iteration_ends[-1] - sample.iteration_ends[0] for sample in samples)
    if end - begin < MIN_OVERLAP * shortest or shortest <= 0:
        return None
    by_trial: dict[int, float] = {}
    for sample in samples:
        within = [moment for moment in sample.iteration_ends if begin <= moment <= end]
        if len(within) <= MIN_ITERATIONS or within[-1] <= within[0]:
            return None
        # k ends have k - 1 whole iterations between them.
        by_trial[sample.trial_id] = (within[-1] - within[0]) / ((len(within) - 1) * sample.n_rows)
    return by_trial
