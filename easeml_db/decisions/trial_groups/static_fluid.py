"""StaticFluid (Fluid, algorithm 1): placement of arriving trials on idle devices.

Trials are placed in non-increasing width, the longest first, on the least loaded devices: widths from 1 take devices of
their own; packed ones share, with at most c trials on a device. A trial that finds no place waits, the longest first,
and starts at its width as soon as there is one.

The paper's theorem 1 calls this a 2-approximation. It is not: ten seconds and seven times 1.5 on 4 devices, c = d = 4,
packing for free, take 10 s against 3.33 s. The bound that no test has broken: makespan <= 2 OPT + max_i h_i(1/c).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from easeml_db.decisions.trial_groups.contract import Budget, DevicePlacement, check_distinct
from easeml_db.decisions.trial_groups.device_occupancy import DeviceOccupancy
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.decisions.trial_groups.widths import widths
from easeml_db.errors import InvalidArgument


@dataclass(frozen=True)
class Waiting:
    """A trial without a place, and its width."""

    budget: Budget
    width: float


@dataclass(frozen=True)
class Filling:
    """The placement: where trials start, which wait, and when all have ended, in seconds, if nothing is resized."""

    placements: tuple[DevicePlacement, ...]
    waiting: tuple[Waiting, ...]
    makespan_seconds: float


def static_fluid(budgets: Sequence[Budget], devices: Sequence[int], profile: Profile) -> Filling:
    """Place a group on idle devices. Raises InvalidArgument for no device, and for a trial or device named twice."""
    if not devices:
        raise InvalidArgument("devices: expected at least one, got none")
    check_distinct((budget.trial_id for budget in budgets), "trials")
    occupancy = DeviceOccupancy(devices, profile)
    waiting = start(occupancy, sized(budgets, len(devices), profile))
    placements = tuple(running_trial.placement for running_trial in occupancy.running.values())
    return Filling(placements, tuple(waiting), _run_out(occupancy, waiting))


def sized(budgets: Sequence[Budget], n_devices: int, profile: Profile) -> list[Waiting]:
    """Return trials with their widths, the widest first, then the longest."""
    trial_widths = widths([budget.seconds for budget in budgets], n_devices, profile)
    waiting = [Waiting(budget, width) for budget, width in zip(budgets, trial_widths, strict=True)]
    return sorted(waiting, key=lambda trial: (-trial.width, -trial.budget.seconds, trial.budget.trial_id))


def start(occupancy: DeviceOccupancy, waiting: Sequence[Waiting]) -> list[Waiting]:
    """Start the trials that find a place, in this order; return those that still wait. Narrower trials may pass one
    that waits.
    """
    idle, shared = (
        occupancy.idle(),
        {d: left for d, left in occupancy.shared().items() if len(left) < occupancy.capacity(d)},
    )
    left: list[Waiting] = []
    for place, trial in enumerate(waiting):
        if not idle and not shared:
            return [*left, *waiting[place:]]
        devices = _devices(trial.width, idle, shared)
        if not devices:
            left.append(trial)
            continue
        occupancy.place(trial.budget, DevicePlacement(trial.budget.trial_id, trial.width, devices))
        idle = [device for device in idle if device not in devices]
        if trial.width < 1:
            _load(shared, devices[0], trial.budget.seconds, occupancy.capacity(devices[0]))
    return left


def _devices(width: float, idle: Sequence[int], shared: Mapping[int, Sequence[float]]) -> tuple[int, ...]:
    """Return the least loaded devices: by number of trials, then by their remaining work; () if there are too few."""
    if width >= 1:
        return tuple(idle[: int(width)]) if len(idle) >= width else ()
    loads = {**dict.fromkeys(idle, ()), **shared}
    return (min(loads, key=lambda device: (len(loads[device]), sum(loads[device]), device)),) if loads else ()


def _load(shared: dict[int, list[float]], device: int, seconds: float, capacity: int) -> None:
    shared.setdefault(device, []).append(seconds)
    if len(shared[device]) == capacity:
        del shared[device]


def _run_out(occupancy: DeviceOccupancy, waiting: Sequence[Waiting]) -> float:
    # What waits starts by length alone, while `sized` has the widest first.
    now, left = 0.0, sorted(waiting, key=lambda trial: (-trial.budget.seconds, trial.budget.trial_id))
    while occupancy.running:
        seconds = occupancy.seconds_to_end()
        occupancy.advance(seconds)
        now += seconds
        left = start(occupancy, left)
    return now
