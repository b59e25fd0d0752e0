"""DynamicFluid (Fluid, algorithm 2): resizing of running trials, when one has left or devices have come and none waits.

Widths w' by the formula of StaticFluid, from what is left of each trial; lines 6 and 8 of the paper print w for w'.

    up    if w' > w and h_w' + eps < h_w
    down  if w' < w and w' (h_w' + eps) < w h_w

Ours: a resize must gain at least `min_gain` of the right-hand side, and a trial is not resized twice within
`min_reports` reports; a trial goes down only where another goes up by what it frees, and neither it nor those that it
joins may then end after the one that goes up would have ended without; where w' cannot be had, the next smaller width
is taken; and devices that the rounding of w' leaves idle go to the longest trials that gain by them, up to d.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from easeml_db.decisions.trial_groups.contract import Resize, RunningTrial, check_distinct
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.decisions.trial_groups.shared_capacity import SharedCapacity
from easeml_db.decisions.trial_groups.widths import widths
from easeml_db.errors import InvalidArgument


@dataclass(frozen=True)
class Resizing:
    """eps, seconds that a resize costs (infinite: never), and the minimum distance between resizes. Raises
    InvalidArgument.
    """

    seconds: float
    min_gain: float = 0.1
    min_reports: float = 5

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise InvalidArgument(f"seconds of a resize: expected at least 0, got {self.seconds}")
        if not 0 <= self.min_gain < 1:
            raise InvalidArgument(f"min_gain: expected at least 0 and less than 1, got {self.min_gain}")

    def pays(self, after: float, before: float) -> bool:
        """Return whether `after`, with eps in it, is enough of a gain."""
        # `after < before` as well: else, with `min_gain` 0, a resize that gains nothing would pass.
        return after < before and after <= (1 - self.min_gain) * before


def dynamic_fluid(
    running: Sequence[RunningTrial],
    devices: Sequence[int],
    profile: Profile,
    resizing: Resizing,
    *,
    is_freed: bool = True,
    capacities: Mapping[int, int] | None = None,
) -> list[Resize]:
    """Return resizes, to be made all at once. `devices` are all devices, including those that trials run on;
    `capacities` gives the most trials on a device if that is less than c.

    `is_freed` says that a trial has left or devices have come since these were placed; otherwise nothing changes.
    Raises InvalidArgument if a trial runs on a device that is not among them: stop and place it first.
    """
    _check(running, devices)
    if not is_freed:
        return []
    plan = _ResizePlan(
        running, SharedCapacity(running, devices, profile, capacities or {}), profile, resizing, n_devices=len(devices)
    )
    for running_trial in plan.longest_first:
        # The longest trials decide the makespan, so they come first.
        plan.widen(running_trial)
    for running_trial in plan.longest_first:
        plan.use_idle(running_trial)
    return sorted(plan.capacity.changed.values(), key=lambda resize: resize.trial_id)


class _ResizePlan:
    def __init__(
        self,
        running: Sequence[RunningTrial],
        capacity: SharedCapacity,
        profile: Profile,
        resizing: Resizing,
        *,
        n_devices: int,
    ) -> None:
        self.capacity, self._resizing, self._profile = capacity, resizing, profile
        self._narrowed: set[int] = set()
        self.longest_first = sorted(running, key=lambda running_trial: (-running_trial.seconds, running_trial.trial_id))
        new_widths = widths([running_trial.seconds for running_trial in self.longest_first], n_devices, profile)
        self._target_widths = {one.trial_id: width for one, width in zip(self.longest_first, new_widths, strict=True)}

    def widen(self, running_trial: RunningTrial) -> None:
        """Widen a trial up to its target width, as far as the devices of others allow."""
        # `int` makes 0 of a target below 1, which never widens a trial.
        trial, target = running_trial.trial_id, int(self._target_widths[running_trial.trial_id])
        if target > self.capacity.width(trial) and self._is_rested(running_trial):
            self._free_devices(trial, target)
            self._go_up(trial, target)

    def use_idle(self, running_trial: RunningTrial) -> None:
        """Widen a trial onto devices that are still idle."""
        if self.capacity.idle and self._is_rested(running_trial) and running_trial.trial_id not in self._narrowed:
            self._go_up(running_trial.trial_id, self._profile.d)

    def _go_up(self, trial: int, most: int) -> None:
        """Widen a trial to the largest width that can be had and pays."""
        for width in range(min(most, len(self.capacity.own(trial)) + len(self.capacity.idle)), 0, -1):
            if width <= self.capacity.width(trial):
                return
            # up: h_w' + eps < h_w
            if self._resizing.pays(self._after(trial, width), self.capacity.seconds(trial)):
                return self.capacity.widen(trial, width)

    def _after(self, trial: int, width: float) -> float:
        return self.capacity.seconds(trial, width) + self._resizing.seconds

    def _free_devices(self, trial: int, target: int) -> None:
        """Narrow others, the shortest first, until there are enough devices; only if widening then pays."""
        if not self._resizing.pays(self._after(trial, target), self.capacity.seconds(trial)):
            return
        for other in reversed(self.longest_first):
            if target - len(self.capacity.own(trial)) <= len(self.capacity.idle):
                return
            if other.trial_id != trial and other.trial_id not in self.capacity.changed and self._is_rested(other):
                self._narrow(other.trial_id, before=self.capacity.seconds(trial))

    def _narrow(self, trial: int, *, before: float) -> None:
        """Narrow a trial if that frees a device, pays, and lets it end before a time in seconds."""
        if not self.capacity.own(trial):
            return
        now, width = self.capacity.width(trial), self._target_widths[trial]
        host = self.capacity.host(trial) if width < 1 else None
        joined = self.capacity.sharers(host) if host is not None else []
        if width < 1:
            width = 1 / (len(joined) + 1)  # as many as will be there; 1 where it can join none
        after = self._after(trial, width)
        # down: w' (h_w' + eps) < w h_w, both in device-seconds: narrowing must free more than the resize takes.
        if width >= now or not self._resizing.pays(width * after, now * self.capacity.seconds(trial)):
            return
        if max([after, *(self.capacity.seconds(sharer, width) for sharer in joined)]) < before:
            self.capacity.narrow(trial, self._target_widths[trial] if joined else width)
            self._narrowed.add(trial)

    def _is_rested(self, running_trial: RunningTrial) -> bool:
        return running_trial.n_reports >= self._resizing.min_reports


def _check(running: Sequence[RunningTrial], devices: Sequence[int]) -> None:
    check_distinct(devices, "devices")
    check_distinct((running_trial.trial_id for running_trial in running), "trials")
    for running_trial in running:
        if lost := set(running_trial.placement.devices) - set(devices):
            raise InvalidArgument(
                f"trial {running_trial.trial_id} runs on device {min(lost)}, which is not among the devices",
                hint="Stop trials on devices that are gone, and let StaticFluid place them.",
            )
