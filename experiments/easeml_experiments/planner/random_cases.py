"""Random jobs, price lists and deadlines; the plan for each beside the best static one, and beside all there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from easeml_db.decisions.planner.baselines import static_plans
from easeml_db.decisions.planner.job import Job, Latency, TrialProfile, halving_job
from easeml_db.decisions.planner.planning import PLANNED, STATIC, Alternative, Goal, make_plans
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.simulation import Allocation, Plan, Prediction, Simulator
from easeml_db.errors import InvalidArgument

DEVICE = "cuda"
N_SAMPLES = 8
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A job at a price list, and where between the fastest and the slowest plan the deadline lies."""

    number: int
    simulator: Simulator
    slack: float


def cases(seed: int, n_cases: int, *, is_small: bool = False) -> Iterator[Case]:
    """Yield random cases; small ones have at most 4 stages and 16 slots, so that all plans can be tried."""
    for number in range(n_cases):
        rng = np.random.default_rng([seed, number, int(is_small)])
        slack = float(rng.uniform(0, 1))
        simulator = Simulator(_job(rng, is_small), _prices(rng, is_small), n_samples=N_SAMPLES, seed=number)
        yield Case(number, simulator, slack)


def _job(rng: np.random.Generator, is_small: bool) -> Job:
    n_stages = int(rng.integers(1, 5 if is_small else 7))
    eta, last = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    n_trials = [min(last * eta**k, 24 if is_small else 400) for k in range(n_stages - 1, -1, -1)]
    epochs = [float(rng.integers(1, 4)) * eta**k for k in range(n_stages)]
    one = float(np.exp(rng.uniform(np.log(0.5), np.log(300))))
    overhead = float(rng.uniform(0, 0.25))
    widths = [1, 2, 4, 8][: int(rng.integers(1, 5))]
    profile = TrialProfile(
        {w: one / w * (1 + overhead * (w - 1)) for w in widths}, spread=float(rng.choice([0, 0.1, 0.5])),
        trial_spread=float(rng.choice([0, 0.2])), units_per_epoch=int(rng.choice([1, 2, 8])),
        is_extrapolated=bool(rng.integers(2)), session_seconds=float(rng.choice([0, 3])),
        restore_seconds=float(rng.choice([0, 1])),
    )  # fmt: skip
    job = halving_job(n_trials, epochs, profile, DEVICE, is_hopping=bool(rng.integers(2)))
    return Job(job.stages, job.profiles, job.is_hopping, float(rng.choice([0, 0.15, 150])))


def _prices(rng: np.random.Generator, is_small: bool) -> PriceList:
    types = []
    for k in range(1 if is_small else int(rng.integers(1, 3))):
        n_slots = int(rng.choice([1, 2, 4, 8]))
        per_function = bool(rng.random() < 0.25)
        types.append(
            InstanceType(
                f"type {k}", DEVICE, n_slots, float(rng.uniform(0.5, 4)) * n_slots,
                billed_by="second" if per_function else str(rng.choice(["second", "second", "minute"])),
                billed_per="function" if per_function else "instance",
                minimum_seconds=0.0 if per_function else float(rng.choice([0, 60])),
                price_per_gb=float(rng.choice([0, 0.01])), queue=Latency(float(rng.choice([0, 5, 60]))),
                initialisation=Latency(float(rng.choice([0, 15, 100])), float(rng.choice([0, 5]))),
                max_instances=16 // n_slots if is_small else None, speed=1.0 if k == 0 else float(rng.uniform(0.5, 2)),
            )
        )  # fmt: skip
    return PriceList("random", tuple(types))


def deadline_of(case: Case) -> float:
    """Return a deadline between the fastest static plan (slack 0) and the slowest (slack 1)."""
    seconds = [case.simulator.predict(plan).mean_seconds for plan in static_plans(case.simulator)]
    least, most = min(seconds), max(seconds)
    return float(least * (most / least) ** case.slack * (1 + 1e-9))


def against_static(case: Case) -> Row:
    """Return time and cost of the plan beside those of the best static plan."""
    deadline = deadline_of(case)
    found = {each.name: each for each in make_plans(case.simulator, Goal(deadline))}
    planned, static = found[PLANNED].prediction, found[STATIC].prediction
    return {
        "case": case.number, "deadline_seconds": deadline, "seconds": planned.mean_seconds, "cost": planned.mean_cost,
        "static_cost": static.mean_cost, "ratio": _ratio(static, planned),
        "is_dearer": planned.mean_cost > static.mean_cost * (1 + 1e-9),
        "is_late": planned.mean_seconds > deadline * (1 + 1e-9),
    }  # fmt: skip


def _ratio(dearer: Prediction, cheaper: Prediction) -> float:
    return dearer.mean_cost / cheaper.mean_cost if cheaper.mean_cost else 1.0


def against_all(case: Case) -> Row:
    """Return the cost of the plan beside that of the best of all plans."""
    deadline = deadline_of(case)
    planned = next(each for each in make_plans(case.simulator, Goal(deadline)) if each.name == PLANNED)
    best = brute_force(case.simulator, deadline)
    return {
        "case": case.number, "n_stages": case.simulator.n_stages, "cost": planned.prediction.mean_cost,
        "best_cost": best.prediction.mean_cost, "ratio": _ratio(planned.prediction, best.prediction),
    }  # fmt: skip


def brute_force(simulator: Simulator, deadline_seconds: float) -> Alternative:
    """Try all numbers of slots in all stages; return the cheapest plan in time. Raises InvalidArgument."""
    best: tuple[float, Plan] | None = None
    (type_number,) = simulator.types
    most = simulator.prices.types[type_number].most_slots
    numbers = [_distinct(simulator, stage, type_number, most) for stage in range(simulator.n_stages)]
    for sizes in product(*numbers):
        plan = tuple(Allocation(type_number, n_slots) for n_slots in sizes)
        found = simulator.predict(plan)
        if found.mean_seconds <= deadline_seconds and (best is None or found.mean_cost < best[0]):
            best = found.mean_cost, plan
    if best is None:
        raise InvalidArgument(f"no plan takes at most {deadline_seconds:g} s")
    return Alternative("best", best[1], simulator.predict(best[1]))


def _distinct(simulator: Simulator, stage: int, type_number: int, most: int) -> list[int]:
    """Return the numbers of slots that differ in instances held, or in what the stage takes on them."""
    instance = simulator.prices.types[type_number]
    seen: dict[tuple[int, float, float], int] = {}
    for n_slots in range(1, most + 1):
        time = simulator.times.of(stage, instance, n_slots)
        key = instance.n_instances(n_slots), float(time.seconds.mean()), float(time.busy_seconds.mean())
        seen.setdefault(key, n_slots)
    return list(seen.values())
