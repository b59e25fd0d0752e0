"""When a run under way will be done, and what it will have cost: the planner's simulator, started at the run's
progress.

It assumes that the run keeps its slots. A run with a time limit ends there at the latest. Costs are slot time at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from easeml_db.decisions.planner.job import Job, Stage, TrialProfile, Vector
from easeml_db.decisions.planner.prices import MAX_SLOTS, InstanceType, PriceList
from easeml_db.decisions.planner.simulation import Allocation, Held, Simulator

FORECAST_SAMPLES = 100
INTERVAL = (0.05, 0.95)


@dataclass(frozen=True)
class Forecast:
    """Seconds from now and further cost, each expected and at both ends of the interval that holds in 90 of 100
    cases."""

    seconds: float
    seconds_least: float
    seconds_most: float
    cost: float
    cost_most: float


@dataclass(frozen=True)
class SlotsHeld:
    """Slots of one kind of device that a run trains on, and the price of one for an hour."""

    device_kind: str
    n_slots: int
    price_per_hour: float = 1.0


def forecast(
    stages: tuple[Stage, ...],
    profiles: Mapping[tuple[str, str], TrialProfile],
    held: SlotsHeld,
    *,
    seconds_to_limit: float | None = None,
    seed: int = 0,
) -> Forecast:
    """Return when the stages are done on slots that are there already. Raises InvalidArgument."""
    if not stages or (seconds_to_limit is not None and seconds_to_limit <= 0):
        return Forecast(0.0, 0.0, 0.0, 0.0, 0.0)
    n_slots = min(held.n_slots, MAX_SLOTS)
    slots = InstanceType("slot", held.device_kind, 1, held.price_per_hour, billed_per="function")
    job = Job(stages, profiles)
    simulator = Simulator(job, PriceList("local", (slots,)), n_samples=FORECAST_SAMPLES, seed=seed)
    prediction = simulator.predict((Allocation(0, n_slots),) * len(stages), Held(0, n_slots))
    seconds, cost = _limited(prediction.seconds, prediction.cost, seconds_to_limit)
    least, most = np.quantile(seconds, INTERVAL)
    return Forecast(
        float(seconds.mean()), float(least), float(most), float(cost.mean()), float(np.quantile(cost, INTERVAL[1]))
    )


def until_limit(held: SlotsHeld, seconds_to_limit: float) -> Forecast:
    """Return the forecast of a run of which only the time limit is known: it may end at any time before."""
    seconds = max(0.0, seconds_to_limit)
    cost = seconds * held.n_slots * held.price_per_hour / 3600
    return Forecast(seconds, 0.0, seconds, cost, cost)


def _limited(seconds: Vector, cost: Vector, seconds_to_limit: float | None) -> tuple[Vector, Vector]:
    """Cut a forecast at a time limit; the cost falls with the time."""
    if seconds_to_limit is None:
        return seconds, cost
    cut = np.minimum(seconds, seconds_to_limit)
    return cut, cost * cut / np.maximum(seconds, 1e-9)
