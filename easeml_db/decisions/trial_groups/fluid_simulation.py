"""A job of trial groups on n equal devices, in simulation: with water-filling, or one trial on each device, in order.

A group arrives when those that it waits for have ended; groups of one priority that arrive together are placed as one.
With water-filling StaticFluid places them on what is idle; when a trial has left and none waits, DynamicFluid resizes
the others. A trial that is resized stands still for eps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from easeml_db.decisions.trial_groups.contract import Budget, DevicePlacement, TrialGroup, check_job
from easeml_db.decisions.trial_groups.device_occupancy import DeviceOccupancy
from easeml_db.decisions.trial_groups.dynamic_fluid import Resizing, dynamic_fluid
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.decisions.trial_groups.static_fluid import Waiting, sized, start
from easeml_db.errors import InvalidArgument


@dataclass(frozen=True)
class Event:
    """At `seconds` a trial of a group started ("start"), moved ("resize", then `placement` is the new one) or ended."""

    seconds: float
    what: str
    group_id: int
    trial_id: int
    placement: DevicePlacement | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a job. `work_seconds`: h_1 of all trials; `busy_seconds`: device-seconds with a trial on the
    device.
    """

    makespan_seconds: float
    work_seconds: float
    busy_seconds: float
    n_devices: int
    n_resizes: int
    events: tuple[Event, ...]

    @property
    def busy_share(self) -> float:
        """Share of device-seconds with a trial on the device, in [0, 1]."""
        return self.busy_seconds / (self.n_devices * self.makespan_seconds)

    def utilisation(self, profile: Profile) -> float:
        """Work done over what the devices could do if packed to the limit all the time, in [0, 1]."""
        return self.work_seconds / (self.n_devices * self.makespan_seconds * profile.throughput)


@dataclass(frozen=True)
class Filled:
    """Settings of water-filling; without `resizing` nothing is resized. `report_seconds`: h_1 between two reports."""

    resizing: Resizing | None = None
    report_seconds: float = 1.0


def simulate(groups: Sequence[TrialGroup], n_devices: int, profile: Profile, filled: Filled | None) -> Outcome:
    """Run a job to its end; without `filled` one trial on each device, first come, first served.

    Raises InvalidArgument, also where groups are not listed in an order in which they could run.
    """
    if n_devices < 1:
        raise InvalidArgument(f"n_devices: expected at least 1, got {n_devices}")
    check_job(groups)
    return _Simulation(groups, n_devices, profile, filled).run()


@dataclass
class _Simulation:
    groups: Sequence[TrialGroup]
    n_devices: int
    profile: Profile
    filled: Filled | None
    now: float = 0.0
    busy: float = 0.0
    n_resizes: int = 0
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        report_seconds = self.filled.report_seconds if self.filled else 1.0
        self._occupancy = DeviceOccupancy(range(self.n_devices), self.profile, report_seconds=report_seconds)
        self._left = {group.group_id: len(group.budgets) for group in self.groups}
        self._ready = [group for group in self.groups if not group.after]
        self._blockers = {group.group_id: len(group.after) for group in self.groups}
        self._after: dict[int, list[TrialGroup]] = {group.group_id: [] for group in self.groups}
        for group in self.groups:
            for before in group.after:
                self._after[before].append(group)
        self._waiting: list[Waiting] = []
        # A trial continues in later groups, so here each (group, trial) has its own number.
        pairs = [(group, budget) for group in self.groups for budget in group.budgets]
        self._of = dict(enumerate((group, budget.trial_id) for group, budget in pairs))
        self._number = {(group.group_id, trial): number for number, (group, trial) in self._of.items()}

    def run(self) -> Outcome:
        """Simulate until nothing runs."""
        self._arrive()
        while self._occupancy.running:
            seconds = self._occupancy.seconds_to_end()
            self.busy += seconds * self._occupancy.n_busy()
            self.now += seconds
            for number in self._occupancy.advance(seconds):
                self._note("end", number)
                self._end(self._of[number][0].group_id)
            self._arrive()
            self._resize()
        work = sum(budget.seconds for group in self.groups for budget in group.budgets)
        return Outcome(self.now, work, self.busy, self.n_devices, self.n_resizes, tuple(self.events))

    def _end(self, group_id: int) -> None:
        """Count one trial less; with the last, groups that waited for this one may come."""
        self._left[group_id] -= 1
        for group in self._after[group_id] if not self._left[group_id] else ():
            self._blockers[group.group_id] -= 1
            if not self._blockers[group.group_id]:
                self._ready.append(group)

    def _arrive(self) -> None:
        """Let groups arrive that can, then start waiting trials where possible."""
        ready, self._ready = self._ready, []
        for _, together in groupby(sorted(ready, key=_urgency), key=_urgency):
            self._waiting += self._sized(list(together))
            self._waiting.sort(key=lambda trial: -self._of[trial.budget.trial_id][0].priority)  # stable
            self._start()
        if not ready:
            self._start()

    def _sized(self, groups: Sequence[TrialGroup]) -> list[Waiting]:
        budgets = [
            Budget(self._number[group.group_id, budget.trial_id], budget.seconds)
            for group in groups
            for budget in group.budgets
        ]
        if self.filled is None:
            return [Waiting(budget, 1.0) for budget in budgets]
        return sized(budgets, len(self._occupancy.idle()), self.profile)

    def _start(self) -> None:
        before = set(self._occupancy.running)
        self._waiting = start(self._occupancy, self._waiting)
        for number in self._occupancy.running.keys() - before:
            self._note("start", number)

    def _resize(self) -> None:
        if self.filled is None or self.filled.resizing is None or self._waiting:
            return
        running = list(self._occupancy.running.values())
        resizes = dynamic_fluid(running, self._occupancy.devices, self.profile, self.filled.resizing)
        self._occupancy.resize(resizes, self.filled.resizing.seconds)
        for resize in resizes:
            self._note("resize", resize.trial_id)
        self.n_resizes += len(resizes)

    def _note(self, what: str, number: int) -> None:
        group, trial_id = self._of[number]
        running_trial = self._occupancy.running.get(number)
        self.events.append(
            Event(self.now, what, group.group_id, trial_id, running_trial.placement if running_trial else None)
        )


def _urgency(group: TrialGroup) -> int:
    return -group.priority
