"""StaticFluid on random small cases against the optimum: mean and worst ratio, and the bound that was never broken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from easeml_db.decisions.trial_groups.contract import Budget
from easeml_db.decisions.trial_groups.optimum import optimum
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.decisions.trial_groups.static_fluid import static_fluid
from easeml_experiments.contract import Measure, at_most

N_CASES, N_CASES_QUICK = 10_000, 100
MOST = 4  # devices, c, d
MOST_TRIALS = 5
Row = dict[str, Any]


def cases(seed: int, n_cases: int) -> Iterator[Row]:
    """Yield random cases with the makespan of StaticFluid, the optimum and the bound; every second has no overheads."""
    rng = np.random.default_rng((seed, 1))
    for number in range(n_cases):
        profile = _profile(rng, is_ideal=number % 2 == 0)
        n_devices, n_trials = (int(rng.integers(1, most + 1)) for most in (MOST, MOST_TRIALS))
        seconds = [float(h_1) for h_1 in rng.lognormal(0.0, rng.uniform(0.0, 1.5), n_trials)]
        yield {"case": number, **case(seconds, n_devices, profile)}


def case(seconds: list[float], n_devices: int, profile: Profile) -> Row:
    """Draw and solve one case; `ratio` is to the optimum, `used` the share of 2 OPT + max_i h_i(1/c)."""
    filled = static_fluid([Budget(i, h_1) for i, h_1 in enumerate(seconds)], range(n_devices), profile)
    best = optimum(seconds, n_devices, profile, known=filled.makespan_seconds)
    bound = 2 * best + profile.seconds(max(seconds), profile.least_width)
    return {
        "n_devices": n_devices, "n_trials": len(seconds), "alpha": profile.alpha, "beta": profile.beta,
        "c": profile.c, "d": profile.d, "static": filled.makespan_seconds, "optimum": best, "bound": bound,
        "ratio": filled.makespan_seconds / best, "used": filled.makespan_seconds / bound,
    }  # fmt: skip


def _profile(rng: np.random.Generator, *, is_ideal: bool) -> Profile:
    c, d = (int(rng.integers(1, MOST + 1)) for _ in range(2))
    if is_ideal:
        return Profile(c=c, d=d)
    alpha = rng.uniform(1, c / (c - 1)) if c > 1 else 1.0
    return Profile(float(alpha), float(rng.uniform(1, 1 + 1 / d)), c, d)


def measures(rows: list[Row]) -> Iterator[Measure]:
    """Return mean and worst ratio, with and without overheads, and the bound."""
    where = f"{len(rows)} cases, up to {MOST} devices, {MOST_TRIALS} trials"
    for name, is_ideal in (("no overheads", True), ("random overheads", False)):
        ratios = [row["ratio"] for row in rows if (row["case"] % 2 == 0) == is_ideal]
        yield Measure("StaticFluid / optimum, mean", f"{name}, {where}", None, float(np.mean(ratios)))
        paper = 2.0 if is_ideal else None  # theorem 1, which does not hold
        yield Measure("StaticFluid / optimum, worst", f"{name}, {where}", paper, max(ratios))
    yield at_most("StaticFluid / (2 OPT + max h(1/c)), worst", where, None, max(row["used"] for row in rows), 1.0)
    shown = case([10.0, *[1.5] * 7], 4, Profile(c=4, d=4))
    yield Measure("StaticFluid / optimum", "10 s and seven times 1.5 s, 4 devices, c = d = 4", 2.0, shown["ratio"])
