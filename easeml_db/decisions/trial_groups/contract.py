"""Values of trial groups (Fluid, section 3.2): what goes into a decision, and what comes out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from easeml_db.errors import InvalidArgument


@dataclass(frozen=True)
class Budget:
    """The remaining work of a trial: h_1, seconds on one device of its own. Raises InvalidArgument."""

    trial_id: int
    seconds: float

    def __post_init__(self) -> None:
        if not (isfinite(self.seconds) and self.seconds > 0):
            raise InvalidArgument(
                f"budgets[trial {self.trial_id}].seconds: expected a number above 0, got {self.seconds}",
                hint="Leave trials with nothing to train out of the group.",
            )


@dataclass(frozen=True)
class TrialGroup:
    """Trials that arrive together, and whose makespan is to be short.

    It arrives when all groups named in `after` have ended. Trials that wait start by priority, the highest first.
    Raises InvalidArgument if it is empty or names a trial twice.
    """

    group_id: int
    budgets: tuple[Budget, ...]
    priority: int = 0
    after: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not self.budgets:
            raise InvalidArgument(f"groups[{self.group_id}].budgets: expected at least one trial, got none")
        check_distinct((budget.trial_id for budget in self.budgets), f"groups[{self.group_id}].budgets")


@dataclass(frozen=True)
class SizedTrial:
    """A trial and its width: a number of whole devices, or below 1 a share of one."""

    trial_id: int
    width: float

    @property
    def is_packed(self) -> bool:
        """Whether others may train on its device."""
        return self.width < 1


@dataclass(frozen=True)
class DevicePlacement(SizedTrial):
    """Where a trial runs: on these devices, by number."""

    devices: tuple[int, ...]

    @property
    def share(self) -> float:
        """Share of each device that it takes, in (0, 1]."""
        return min(self.width, 1.0)


@dataclass(frozen=True)
class RunningTrial:
    """A running trial: `seconds` is h_1 of its remaining work; `n_reports` counts since its last resize."""

    placement: DevicePlacement
    seconds: float
    n_reports: float = inf

    @property
    def trial_id(self) -> int:
        """The trial."""
        return self.placement.trial_id


@dataclass(frozen=True)
class Resize:
    """A trial that leaves its devices and continues on others, at the end of its current iteration."""

    before: DevicePlacement
    after: DevicePlacement

    @property
    def trial_id(self) -> int:
        """The trial."""
        return self.after.trial_id


def check_distinct(numbers: Iterable[int], what: str) -> None:
    """Raise InvalidArgument where a number comes twice."""
    listed = list(numbers)
    if twice := sorted({number for number in listed if listed.count(number) > 1}):
        raise InvalidArgument(f"{what}: expected each once, got {twice[0]} more than once")


def check_job(groups: Sequence[TrialGroup]) -> None:
    """Raise InvalidArgument unless groups are distinct and each waits only for groups listed before it."""
    check_distinct((group.group_id for group in groups), "groups")
    earlier: set[int] = set()
    for group in groups:
        if unknown := group.after - earlier:
            raise InvalidArgument(
                f"group {group.group_id} waits for group {min(unknown)}, which is not listed before it",
                hint="List groups in an order in which they could run.",
            )
        earlier.add(group.group_id)
