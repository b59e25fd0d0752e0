"""One repeat: tenants and their true qualities and costs, a strategy, and what is lost while it serves them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from easeml_db.decisions.tenancy.arm_rules import ArmRule
from easeml_db.decisions.tenancy.contract import Policy
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.selector import Selector
from easeml_experiments.tenants.matrices import Floats
from easeml_experiments.tenants.servers import Server


@dataclass(frozen=True, eq=False)
class Trace:
    """A step curve: `loss[k]`, the mean accuracy loss of the tenants, holds from `cost[k]` on (cost 0 first).

    `cost` is a share of the summed cost of everything (of the time that all devices would need for it); `tenants` and
    `arms` are what was served, in the order of results.
    """

    cost: Floats
    loss: Floats
    total_cost: float
    tenants: tuple[int, ...]
    arms: tuple[int, ...]
    n_freezes: int = 0


def replay(server: Server, quality: Floats, cost: Floats, *, budget: float = 1.0, n_devices: int = 1) -> Trace:
    """Serve tenants until the budget, a share of all cost, is spent; `quality` and `cost` are (n, K), nan where a
    model is not offered. With several devices a decision is made whenever one frees, and others are under way."""
    n = len(quality)
    best, so_far = np.nanmax(quality, axis=1), np.zeros(n)
    total = float(np.nansum(cost)) / n_devices
    now, loss = 0.0, float(best.mean())
    costs, losses, served = [0.0], [loss], []
    busy: list[tuple[float, int, int]] = []
    while now < budget * total:
        while len(busy) < n_devices and (begun := server.begin()) is not None:
            heapq.heappush(busy, (now + float(cost[begun]), *begun))
        if not busy:
            break
        now, tenant, arm = heapq.heappop(busy)
        server.finish(tenant, arm, float(quality[tenant, arm]), float(cost[tenant, arm]))
        gain = max(float(quality[tenant, arm]) - so_far[tenant], 0.0)
        so_far[tenant] += gain
        loss = max(loss - gain / n, 0.0)
        costs.append(now / total)
        losses.append(loss)
        served.append((tenant, arm))
    tenants, arms = zip(*served, strict=True) if served else ((), ())
    return Trace(np.array(costs), np.array(losses), total, tenants, arms, server.n_freezes)


def regret(
    quality: Floats,
    cost: Floats,
    bandit_of: Callable[[int], RunBandit],
    policy: Policy,
    arm_rule: ArmRule,
    n_rounds: int,
) -> Floats:
    """Return R_T of ease.ml's theorems for T = 1..n_rounds, shape (n_rounds,), of bandits that may play arms again."""
    selector: Selector[int] = Selector(policy, arm_rule)
    for tenant in range(len(quality)):
        selector.join(tenant, bandit_of(tenant))
    plays = []
    for _ in range(n_rounds):
        decision = selector.choose()
        if decision is None:
            raise ValueError("no arm is left: let arms be played again")
        selector.begin(decision)
        selector.finish(decision.run, decision.arm, float(quality[decision.run, decision.arm]))
        plays.append((decision.run, decision.arm))
    return regret_of(quality, cost, plays)


def regret_of(quality: Floats, cost: Floats, plays: Sequence[tuple[int, int]]) -> Floats:
    """Return R_T after each play of (tenant, arm): each round's cost times the sum over tenants of best quality minus
    the quality of the arm played LAST (0 before the first).
    """
    missing = np.nanmax(quality, axis=1)
    best, lost, total = missing.copy(), float(missing.sum()), 0.0
    regrets = np.empty(len(plays))
    for t, (tenant, arm) in enumerate(plays):
        gap = best[tenant] - quality[tenant, arm]
        lost += gap - missing[tenant]
        missing[tenant] = gap
        total += float(cost[tenant, arm]) * lost
        regrets[t] = total
    return regrets


def log_slope(regrets: Floats) -> float:
    """Return the slope of log R_T over log T in the last half; below 1 the regret is sublinear."""
    t = np.arange(len(regrets) // 2, len(regrets))
    return float(np.polyfit(np.log(t + 1), np.log(np.maximum(regrets[t], math.ulp(1.0))), 1)[0])
