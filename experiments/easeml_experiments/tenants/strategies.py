"""Strategies by name: a tenancy policy, an arm rule and a prior; `ours` and `hybrid` are fixed for all datasets.

`default` is what a new server does, in the server's own code, whatever its settings say; `default_in_turns` takes its
beliefs and arms, but round robin chooses the tenant.

ease.ml's own is hybrid with GP-UCB and the RBF prior. Spearmint* is round robin, expected improvement per second and
the same prior; the paper says neither which features nor which prior its Spearmint* has. MOSTCITED and MOSTRECENT try
models in a fixed order, which the paper does not print: these orders are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from easeml_db.decisions.bandits import priors
from easeml_db.decisions.tenancy.arm_rules import ARM_RULES, EXPERT_RULES, ArmRule, in_order
from easeml_db.decisions.tenancy.contract import Policy
from easeml_db.decisions.tenancy.policies import DEFAULT, POLICIES, make_policy
from easeml_db.errors import InvalidArgument
from easeml_experiments.tenants.baseline_policies import BASELINES

MOST_CITED = ("AlexNet", "VGG-16", "GoogLeNet", "ResNet-50", "NIN", "BN-AlexNet", "SqueezeNet", "ResNet-18")
MOST_RECENT = ("SqueezeNet", "ResNet-50", "ResNet-18", "BN-AlexNet", "VGG-16", "GoogLeNet", "NIN", "AlexNet")
N_SHUFFLED = 20


@dataclass(frozen=True)
class Strategy:
    """How tenants and arms are chosen. `order` names models tried in that order, whatever is observed, and
    `shuffle_seed` draws one; without `is_cost_aware` decisions are made as if all costs were 1. `is_theorem` takes the
    betas of the theorems and lets arms be played again. `is_default`: what a new server does."""

    name: str
    policy: str
    arm_rule: str = "ucb"
    prior: str = "rbf"
    order: tuple[str, ...] = ()
    shuffle_seed: int | None = None
    is_cost_aware: bool = True
    is_theorem: bool = False
    is_default: bool = False

    @property
    def is_robust(self) -> bool:
        """Whether it asks several experts of a robust belief."""
        return ARM_RULES[self.arm_rule] in EXPERT_RULES

    def make_policy(self, seed: int) -> Policy:
        """Return a new policy, for one repeat."""
        baseline = BASELINES.get(self.policy)
        return make_policy(self.policy, seed=seed) if baseline is None else baseline(seed)

    def make_arm_rule(self, models: Sequence[str]) -> ArmRule:
        """Return the rule by which a tenant's arm is chosen among these models."""
        if self.shuffle_seed is not None:
            return in_order(np.random.default_rng(self.shuffle_seed).permutation(len(models)).tolist())
        return in_order(ordered(self.order, models)) if self.order else ARM_RULES[self.arm_rule]


def ordered(order: Sequence[str], models: Sequence[str]) -> list[int]:
    """Return the places of the models in an order of names; models that it does not name come last, as they stand."""
    rank = {name: n for n, name in enumerate(order)}
    return sorted(range(len(models)), key=lambda place: rank.get(models[place], len(order)))


SERVER = Strategy("default", DEFAULT, POLICIES[DEFAULT].arm_rule, priors.DEFAULT, is_default=True)
OURS = Strategy("ours", "ei_rate", "ei_rate", "empirical_logit")
HYBRID = Strategy("hybrid", "hybrid")
STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        each.name: each
        for each in (
            SERVER,
            replace(SERVER, name="default_in_turns", policy="round_robin", is_default=False),
            OURS,
            replace(OURS, name="ei_rate"),
            replace(OURS, name="ours_without_cost", is_cost_aware=False),
            HYBRID,
            replace(HYBRID, name="hybrid_without_cost", is_cost_aware=False),
            replace(HYBRID, name="hybrid_best_prior", prior=OURS.prior),
            Strategy("greedy", "greedy"),
            Strategy("round_robin", "round_robin"),
            Strategy("random", "random"),
            Strategy("fcfs", "fcfs"),
            Strategy("spearmint", "round_robin", "ei_rate"),
            Strategy("spearmint_best_prior", "round_robin", "ei_rate", OURS.prior),
            Strategy("mostcited", "round_robin", order=MOST_CITED, prior="independent"),
            Strategy("mostrecent", "round_robin", order=MOST_RECENT, prior="independent"),
            *(
                Strategy(f"order_{n}", "round_robin", shuffle_seed=n, prior="independent")
                for n in range(1, N_SHUFFLED + 1)
            ),
        )
    }
)
SHUFFLED = tuple(f"order_{n}" for n in range(1, N_SHUFFLED + 1))
NAMES = tuple(name for name in STRATEGIES if name not in SHUFFLED)


def strategy(name: str) -> Strategy:
    """Return the strategy of a name; a tenancy policy's name gives it with the arm rule and prior that go with it here.
    Raises InvalidArgument."""
    if name not in STRATEGIES:
        raise InvalidArgument(
            f"--policies: there is no policy or strategy {name!r}", hint=f"Choose among: {', '.join(NAMES)}."
        )
    return STRATEGIES[name]


def theorem(name: str) -> Strategy:
    """Return a strategy as the theorems have it."""
    return replace(strategy(name), is_theorem=True)
