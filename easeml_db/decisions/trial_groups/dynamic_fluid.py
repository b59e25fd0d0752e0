"""DynamicFluid (Fluid, algorithm 2): trials that run, when one has left or devices have come and none waits.

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

from easeml_db.decisions.trial_groups.contract import Occupant, Resize, check_distinct
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.decisions.trial_groups.room import Room
from easeml_db.decisions.trial_groups.widths import widths
from easeml_db.errors import InvalidArgument


@dataclass(frozen=True)
class Resizing:
    """eps, seconds that a resize costs (infinite: never), and what keeps resizes apart. Raises InvalidArgument."""

    seconds: float
    min_gain: float = 0.1
    min_reports: float = 5

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise InvalidArgument(f"seconds of a resize: expected at least 0, got {self.seconds}")
        if not 0 <= self.min_gain < 1:
            raise InvalidArgument(f"min_gain: expected at least 0 and less than 1, got {self.min_gain}")

    def pays(self, after: float, before: float) -> bool:
        """Whether `after`, with eps in it, is enough of a gain."""
        return after < before and after <= (1 - self.min_gain) * before


def dynamic_fluid(
    running: Sequence[Occupant],
    devices: Sequence[int],
    profile: Profile,
    resizing: Resizing,
    *,
    is_freed: bool = True,
    capacities: Mapping[int, int] | None = None,
) -> list[Resize]:
    """Resizes, to be made all at once. `devices` are all there are, with those that trials run on; `capacities` gives
    the most trials on a device where that is less than c.

    `is_freed` says that a trial has left or devices have come since these were placed; otherwise nothing changes.
    Raises InvalidArgument where a trial runs on a device that is not among them: stop and place it first.
    """
    _check(running, devices)
    if not is_freed:
        return []
    plan = _Plan(running, Room(running, devices, profile, capacities or {}), profile, resizing, n_devices=len(devices))
    for occupant in plan.longest_first:
        plan.widen(occupant)
    for occupant in plan.longest_first:
        plan.use_idle(occupant)
    return sorted(plan.room.changed.values(), key=lambda resize: resize.trial_id)


class _Plan:
    def __init__(
        self, running: Sequence[Occupant], room: Room, profile: Profile, resizing: Resizing, *, n_devices: int
    ) -> None:
        self.room, self._resizing, self._profile = room, resizing, profile
        self._narrowed: set[int] = set()
        self.longest_first = sorted(running, key=lambda each: (-each.seconds, each.trial_id))
        wanted = widths([each.seconds for each in self.longest_first], n_devices, profile)
        self._wanted = {each.trial_id: width for each, width in zip(self.longest_first, wanted, strict=True)}

    def widen(self, occupant: Occupant) -> None:
        """Let a trial go up as far as it should, and others' devices allow."""
        trial, wanted = occupant.trial_id, int(self._wanted[occupant.trial_id])
        if wanted > self.room.width(trial) and self._is_rested(occupant):
            self._make_room(trial, wanted)
            self._go_up(trial, wanted)

    def use_idle(self, occupant: Occupant) -> None:
        """Let a trial go up on what is still idle."""
        if self.room.idle and self._is_rested(occupant) and occupant.trial_id not in self._narrowed:
            self._go_up(occupant.trial_id, self._profile.d)

    def _go_up(self, trial: int, most: int) -> None:
        """To the largest width that can be had and pays."""
        for width in range(min(most, len(self.room.own(trial)) + len(self.room.idle)), 0, -1):
            if width <= self.room.width(trial):
                return
            if self._resizing.pays(self._after(trial, width), self.room.seconds(trial)):
                return self.room.widen(trial, width)

    def _after(self, trial: int, width: float) -> float:
        return self.room.seconds(trial, width) + self._resizing.seconds

    def _make_room(self, trial: int, wanted: int) -> None:
        """Narrow others, the shortest first, until there are enough devices; only where going up then pays."""
        if not self._resizing.pays(self._after(trial, wanted), self.room.seconds(trial)):
            return
        for other in reversed(self.longest_first):
            if wanted - len(self.room.own(trial)) <= len(self.room.idle):
                return
            if other.trial_id != trial and other.trial_id not in self.room.changed and self._is_rested(other):
                self._narrow(other.trial_id, before=self.room.seconds(trial))

    def _narrow(self, trial: int, *, before: float) -> None:
        """Narrow a trial if that frees a device, pays, and ends before so many seconds."""
        if not self.room.own(trial):
            return
        now, width = self.room.width(trial), self._wanted[trial]
        host = self.room.host(trial) if width < 1 else None
        joined = self.room.sharers(host) if host is not None else []
        if width < 1:
            width = 1 / (len(joined) + 1)  # as many as will be there; 1 where it can join none
        after = self._after(trial, width)
        if width >= now or not self._resizing.pays(width * after, now * self.room.seconds(trial)):
            return
        if max([after, *(self.room.seconds(each, width) for each in joined)]) < before:
            self.room.narrow(trial, self._wanted[trial] if joined else width)
            self._narrowed.add(trial)

    def _is_rested(self, occupant: Occupant) -> bool:
        return occupant.n_reports >= self._resizing.min_reports


def _check(running: Sequence[Occupant], devices: Sequence[int]) -> None:
    check_distinct(devices, "devices")
    check_distinct((each.trial_id for each in running), "trials")
    for each in running:
        if lost := set(each.placement.devices) - set(devices):
            raise InvalidArgument(
                f"trial {each.trial_id} runs on device {min(lost)}, which is not among the devices",
                hint="Stop trials on devices that are gone, and let StaticFluid place them.",
            )
