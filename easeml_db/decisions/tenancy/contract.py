"""The contract of policies: each chooses which run is served next.

Rule for weights (1 each by default): a run's potential counts as often as its weight says. Policies that compare
potentials multiply them by it (greedy, hybrid, ei_rate, robust), policies that share turns give turns in its proportion
(round_robin, random); fcfs knows no weights. Deadlines are handled by the selector, before any policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from easeml_db.decisions.tenancy.standings import Mask, Standings

Same = TypeVar("Same", bound="Forgetful")


@dataclass(frozen=True)
class Choice:
    """The run to serve, by its place in the standings; `phase` says by which rule, `candidates` among whom."""

    place: int
    phase: str
    candidates: Mask


class Policy(Protocol):
    """Decides which run to serve. At least one can open an arm when it is asked."""

    def copy(self) -> Policy:
        """Return an independent copy of the policy in its present state."""

    def choose(self, standings: Standings) -> Choice:
        """Return which run to serve, and count that as done."""

    def charge(self, phase: str, cost: float) -> None:
        """Note what the choice costs, and by which rule it was made, the policy's own or one that comes before it."""

    def renew(self, left: int | None = None) -> None:
        """Note that a run or an arm arrived or left; `left` is the former place of a run; later runs have moved up."""

    def memory(self) -> Mapping[str, Any]:
        """Return what must outlive the process, as JSON values with runs by place, without anything that the standings
        hold.
        """

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Restore the memory of another process, once all runs have joined in the same order of arrival."""


class Costless:
    """The part of a policy that does not ask what its choices cost."""

    def charge(self, phase: str, cost: float) -> None:
        """Change nothing."""


class Forgetful(Costless):
    """The part of a policy that keeps nothing between two decisions."""

    def copy(self: Same) -> Same:
        """Return itself: it has no state."""
        return self

    def renew(self, left: int | None = None) -> None:
        """Change nothing."""

    def memory(self) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Restore nothing."""
