"""What serves the tenants of a repeat: a policy over bandits, or all that a new server does, in the same code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.arm_rules import ArmRule
from easeml_db.decisions.tenancy.contract import Policy
from easeml_db.decisions.tenancy.history import History
from easeml_db.decisions.tenancy.hybrid import Hybrid
from easeml_db.decisions.tenancy.pool import Pool
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.selector import Selector
from easeml_db.words.run import Arm, Run
from easeml_db.words.tenant import PastArm, Tenancy
from easeml_experiments.tenants.matrices import Floats


class Server(Protocol):
    """Says what is tried next, and takes in what came of it."""

    def begin(self) -> tuple[int, int] | None:
        """Decide: return the tenant and the arm that begins now; None if nothing is left that could."""

    def finish(self, tenant: int, arm: int, quality: float, cost: float) -> None:
        """Take in a result."""

    @property
    def n_freezes(self) -> int:
        """How often hybrid was frozen."""


class PolicyServer:
    """A policy over bandits, all of which arrive at once."""

    def __init__(self, n_tenants: int, bandit_of: Callable[[int], RunBandit], policy: Policy, rule: ArmRule) -> None:
        self._selector: Selector[int] = Selector(policy, rule)
        for tenant in range(n_tenants):
            self._selector.join(tenant, bandit_of(tenant))

    def begin(self) -> tuple[int, int] | None:
        """Decide."""
        decision = self._selector.choose()
        if decision is None:
            return None
        self._selector.begin(decision)
        return decision.run, decision.arm

    def finish(self, tenant: int, arm: int, quality: float, cost: float) -> None:
        """Take in a result."""
        self._selector.finish(tenant, arm, quality)

    @property
    def n_freezes(self) -> int:
        """How often hybrid was frozen."""
        return self._selector.policy.n_freezes if isinstance(self._selector.policy, Hybrid) else 0


@dataclass(frozen=True)
class _Place:
    """A tenant's arm, by its number in the pool."""

    tenant: int
    arm: int


class DefaultServer:
    """The coordinator's pool with the settings of a new server: its policy, prior, histories, costs, first service.

    Past users are closed runs. Costs are known before the first decision, as if every arm had been timed.
    """

    n_freezes = 0

    def __init__(self, quality: Floats, cost: Floats, training: Floats) -> None:
        self._pool = Pool(Tenancy(), History(_past_arms(training)))
        self._cost, self._n_slots, self._n_events = cost, 1, 0
        self._runs: dict[int, Run] = {}
        self._places: dict[int, _Place] = {}
        priors: dict[bytes, Prior] = {}
        first = len(training) + 1
        for tenant, offered in enumerate(np.isfinite(quality)):
            arms = self._arms_of(tenant, offered)
            run = Run(first + tenant, 0, "running", None, None, (), {}, tenant=f"tenant {tenant}", arms=arms)
            # Runs that begin at once with the same arms have the same prior; making it is most of the time.
            key = offered.tobytes()
            priors[key] = priors.get(key) or self._pool.prior_of(run)
            self._runs[tenant] = run
            self._pool.put_run(run, priors[key])
            self._pool.set_seconds(run.run_id, {arm.arm_id: self._seconds(arm.arm_id) for arm in arms})

    def _arms_of(self, tenant: int, offered: np.ndarray) -> tuple[Arm, ...]:
        ids = {len(offered) * tenant + arm: arm for arm in np.flatnonzero(offered).tolist()}
        self._places |= {arm_id: _Place(tenant, arm) for arm_id, arm in ids.items()}
        return tuple(Arm(arm_id, _name(arm)) for arm_id, arm in ids.items())

    def _seconds(self, arm_id: int) -> float:
        place = self._places[arm_id]
        return float(self._cost[place.tenant, place.arm])

    def begin(self) -> tuple[int, int] | None:
        """Decide, and carry the decision out."""
        opening = self._pool.choose(0.0, n_slots=1)
        if opening is None:
            return None
        self._n_events += 1
        self._pool.opened(opening, self._n_events)
        place = self._places[opening.arm_id]
        return place.tenant, place.arm

    def finish(self, tenant: int, arm: int, quality: float, cost: float) -> None:
        """Close an arm."""
        self._n_events += 1
        run, arm_id = self._runs[tenant], self._cost.shape[1] * tenant + arm
        opened = next(one for one in run.arms if one.arm_id == arm_id)
        closed = replace(opened, opening=self._n_events, closing=self._n_events, quality=quality, cost_seconds=cost)
        self._pool.arm_closed(run, closed)


def _name(arm: int) -> str:
    return f"model {arm}"


def _past_arms(training: Floats) -> list[PastArm]:
    return [
        PastArm(user + 1, "classification", _name(arm), float(training[user, arm]), 1.0, 1.0)
        for user, arm in np.argwhere(np.isfinite(training)).tolist()
    ]
