"""What one decision costs among many tenants: choose tenant and arm, then update the posterior with the result."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.bandits.priors import make_prior
from easeml_db.decisions.tenancy.arm_rules import ARM_RULES
from easeml_db.decisions.tenancy.policies import make_policy
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.selector import Selector
from easeml_experiments.tenants.strategies import Strategy, strategy
from easeml_experiments.tenants.synthetic import synthetic

N_PAST, N_WARM_UP_PLAYS = 100, 2


@dataclass(frozen=True)
class Size:
    """Tenants, arms of each, decisions timed after each tenant was served twice in the mean."""

    n_tenants: int = 10_000
    n_arms: int = 200
    n_timed: int = 2_000


def measure_decisions(name: str, size: Size, seed: int) -> dict[str, Any]:
    """Return milliseconds a decision, mean and 99th percentile, and the megabytes by which this process grew."""
    chosen = strategy(name)
    past = synthetic(0.5, 1.0, seed=seed, n_users=N_PAST, n_models=size.n_arms)
    rng = np.random.default_rng(seed)
    before = _resident_bytes()
    selector = _selector(chosen, make_prior(chosen.prior, past.quality), size, rng)
    for _ in range(N_WARM_UP_PLAYS * size.n_tenants):
        _decide(selector, float(rng.uniform()))
    seconds = np.array([_decide(selector, float(rng.uniform())) for _ in range(size.n_timed)])
    return {
        "strategy": name,
        "tenants": size.n_tenants,
        "arms": size.n_arms,
        "decisions": size.n_timed,
        "milliseconds": 1e3 * float(seconds.mean()),
        "milliseconds_p99": 1e3 * float(np.quantile(seconds, 0.99)),
        "megabytes": (_resident_bytes() - before) / 1e6,
    }


def _selector(chosen: Strategy, prior: Prior, size: Size, rng: np.random.Generator) -> Selector[int]:
    selector: Selector[int] = Selector(make_policy(chosen.policy), ARM_RULES[chosen.arm_rule])
    for tenant in range(size.n_tenants):
        selector.join(tenant, RunBandit(prior, rng.uniform(0.1, 2.0, size.n_arms), is_robust=chosen.is_robust))
    return selector


def _decide(selector: Selector[int], quality: float) -> float:
    """Make a decision and take in its result; return the seconds of both."""
    started = time.perf_counter()
    decision = selector.choose()
    if decision is not None:
        selector.begin(decision)
        selector.finish(decision.run, decision.arm, quality)
    return time.perf_counter() - started


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
