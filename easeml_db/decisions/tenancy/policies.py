"""The tenancy policies by name, with the arm rule and the kind of belief that go with each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from easeml_db.decisions.tenancy.arm_rules import ARM_RULES, EXPERT_RULES
from easeml_db.decisions.tenancy.contract import Policy
from easeml_db.decisions.tenancy.ei_rate import EiRate
from easeml_db.decisions.tenancy.greedy import Greedy
from easeml_db.decisions.tenancy.hybrid import Hybrid
from easeml_db.decisions.tenancy.robust import Robust
from easeml_db.decisions.tenancy.round_robin import RoundRobin
from easeml_db.errors import InvalidArgument

DEFAULT = "robust"


@dataclass(frozen=True)
class Description:
    """A policy in words, how it is made from a seed, and how it chooses the arm of a run."""

    summary: str
    make: Callable[[int], Policy]
    arm_rule: str = "ucb"

    @property
    def is_robust(self) -> bool:
        """Whether it asks several experts of a robust belief."""
        return ARM_RULES[self.arm_rule] in EXPERT_RULES


POLICIES: Mapping[str, Description] = MappingProxyType(
    {
        "robust": Description(
            "ei_rate with a guard against a misleading history, and a third of the cost in turns",
            lambda seed: Robust(), "robust_ei_rate",
        ),
        "hybrid": Description("greedy until it stands still, then round robin (ease.ml)", lambda seed: Hybrid()),
        "greedy": Description("the run with the largest estimated regret (ease.ml)", lambda seed: Greedy(seed=seed)),
        "round_robin": Description("runs in turn, in proportion to their weights", lambda seed: RoundRobin()),
        "ei_rate": Description(
            "the arm of all runs with the largest expected improvement per second", lambda seed: EiRate(), "ei_rate"
        ),
    }
)  # fmt: skip


def description(name: str) -> Description:
    """Return the description of a policy. Raises InvalidArgument."""
    if name not in POLICIES:
        raise InvalidArgument(
            f"policy: there is no tenancy policy {name!r}", hint=f"Choose one of: {', '.join(POLICIES)}."
        )
    return POLICIES[name]


def make_policy(name: str, *, seed: int = 0) -> Policy:
    """Make the policy of a name. Raises InvalidArgument."""
    return description(name).make(seed)


def list_policies() -> list[dict[str, Any]]:
    """Return every policy as a row, for SQL."""
    return [
        {"policy": name, "is_default": name == DEFAULT, "arm_rule": policy.arm_rule, "summary": policy.summary}
        for name, policy in POLICIES.items()
    ]
