"""A pool of tenants whose qualities are known beforehand, and which arms are opened there."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.arm_rules import ARM_RULES
from easeml_db.decisions.tenancy.contract import Policy
from easeml_db.decisions.tenancy.policies import description, make_policy
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.selector import PolicyDecision, Selector


class World:
    """`policy` is a name or makes one; tenants are numbered as they arrive, `opened` are (tenant, arm) in order."""

    def __init__(
        self,
        policy: str | Callable[[], Policy],
        n_tenants: int = 0,
        n_arms: int = 4,
        *,
        seed: int = 0,
        allow_replays: bool = False,
    ) -> None:
        self._policy, self.n_arms, self.seed, self.allow_replays = policy, n_arms, seed, allow_replays
        self.rng = np.random.default_rng(seed)
        factor = self.rng.normal(0, 0.1, (n_arms, n_arms))
        self.prior = Prior(np.full(n_arms, 0.5), factor @ factor.T + 0.01 * np.eye(n_arms), 1e-4)
        self.qualities: dict[int, np.ndarray] = {}
        self.costs: dict[int, np.ndarray] = {}
        self.events: list[tuple[int, int, float | None, float | None]] = []  # tenant, arm, bound or quality
        self.opened: list[tuple[int, int]] = []
        self.pending: list[tuple[int, int]] = []
        self.blocked: frozenset[int] = frozenset()
        self.selector = self._new_selector()
        for _ in range(n_tenants):
            self.join()

    def _new_selector(self) -> Selector[int]:
        if not isinstance(self._policy, str):
            return Selector(self._policy(), ARM_RULES["ucb"])
        return Selector(make_policy(self._policy, seed=self.seed), ARM_RULES[description(self._policy).arm_rule])

    def bandit(self, tenant: int) -> RunBandit:
        """A bandit without a past, of the kind that the policy asks."""
        is_robust = isinstance(self._policy, str) and description(self._policy).is_robust
        return RunBandit(self.prior, self.costs[tenant], allow_replays=self.allow_replays, is_robust=is_robust)

    def join(self, *, weight: float = 1.0, deadline_seconds: float = np.inf) -> int:
        """A tenant arrives; return its number."""
        tenant = len(self.qualities)
        self.qualities[tenant] = self.rng.uniform(0.1, 0.9, self.n_arms)
        self.costs[tenant] = self.rng.uniform(0.2, 2.0, self.n_arms)
        self.selector.join(tenant, self.bandit(tenant), weight=weight, deadline_seconds=deadline_seconds)
        return tenant

    def leave(self, tenant: int) -> None:
        """A tenant leaves, and its plays are given up."""
        self.selector.leave(tenant)
        self.pending = [play for play in self.pending if play[0] != tenant]

    def begin(self, now_seconds: float = 0.0) -> PolicyDecision[int] | None:
        """Decide."""
        decision = self.selector.choose(now_seconds, blocked=self.blocked)
        if decision is not None:
            self.selector.begin(decision)
            self.opened.append((decision.run, decision.arm))
            self.pending.append((decision.run, decision.arm))
            self.events.append((decision.run, decision.arm, decision.bound, None))
        return decision

    def finish(self, place: int = 0) -> None:
        """The result of one of the plays under way arrives."""
        tenant, arm = self.pending.pop(place)
        quality = float(self.qualities[tenant][arm])
        self.events.append((tenant, arm, None, quality))
        self.selector.finish(tenant, arm, quality)

    def step(self, now_seconds: float = 0.0) -> PolicyDecision[int] | None:
        """Decide, and see the result."""
        decision = self.begin(now_seconds)
        if decision is not None:
            self.finish(-1)
        return decision

    def steps(self, n: int) -> list[int]:
        """The tenants that are served in that many steps."""
        return [decision.run for _ in range(n) if (decision := self.step()) is not None]

    def play_out(self) -> list[tuple[int, int]]:
        """Play until nothing is left; return all plays."""
        while self.step() is not None:
            pass
        return self.opened

    def restart(self, memory: dict | None = None) -> None:
        """Another process takes over: from what was written down of plays, terms and the policy's memory alone."""
        written = json.loads(json.dumps(self.selector.memory() if memory is None else memory))
        old, self.selector = self.selector, self._new_selector()
        for tenant in old.bandits:
            bandit = self.bandit(tenant)
            for owner, arm, bound, quality in self.events:
                if owner == tenant and bound is not None:
                    bandit.begun(arm, bound)
                elif owner == tenant and quality is not None:
                    bandit.finish(arm, quality)
            place = [old.key(k) for k in range(len(old.bandits))].index(tenant)
            self.selector.join(tenant, bandit, weight=float(old.standings.weight[place]))
        self.selector.remember(written)


@pytest.fixture(scope="session")
def new_world() -> type[World]:
    """Makes a pool."""
    return World
