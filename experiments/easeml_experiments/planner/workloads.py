"""The paper's jobs, scaling curves and prices, as the sheet of its gaps completes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from statistics import NormalDist
from types import MappingProxyType

from easeml_db.decisions.planner.job import Job, Latency, TrialProfile, halving_job
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.simulation import Simulator
from easeml_db.decisions.procedures.rungs import halving_bracket

DEVICE = "cuda"
PRICE_PER_HOUR = 12.24  # p3.8xlarge, as table 2's rows at 30 and 40 minutes imply
N_SLOTS = 4
LEAST_SECONDS = 0.1  # of an iteration: a normal distribution would go below 0
# ResNet50, table 1; ResNet101, table 2, solved from its own rows; and one that saturates at 10, for figure 12.
LOG_LOG: Mapping[int, float] = MappingProxyType({1: 1.0, 2: 1.97, 4: 3.70})
TABLE_2: Mapping[int, float] = MappingProxyType({1: 1.0, 2: 1.97, 4: 3.70, 8: 5.0})
SATURATING: Mapping[int, float] = MappingProxyType({1: 1.0, 2: 1.97, 4: 3.70, 8: 6.2, 16: 8.6, 32: 10.0})


def halving(n_trials: int, first: int, last: int, eta: int, profile: TrialProfile) -> Job:
    """Return the paper's successive halving: rungs are further iterations, and each trial keeps its accelerators."""
    rungs = halving_bracket(n_trials, first, last, eta, increments=True)
    totals = [0, *(rung.n_epochs for rung in rungs)]
    more = [after - before for before, after in pairwise(totals)]
    return halving_job([rung.n_trials for rung in rungs], more, profile, DEVICE, is_hopping=False)


def profile(
    seconds: float, speedups: Mapping[int, float], *, spread: float = 0.0, is_extrapolated: bool = False
) -> TrialProfile:
    """Return how long an iteration takes by the number of accelerators."""
    by_width = {width: seconds / speedup for width, speedup in speedups.items()}
    return TrialProfile(by_width, spread, is_extrapolated=is_extrapolated)


def truncated(mean: float, deviation: float) -> tuple[float, float]:
    """Return mean and relative deviation of a normal distribution above LEAST_SECONDS."""
    normal = NormalDist()
    alpha = (LEAST_SECONDS - mean) / deviation
    above = 1 - normal.cdf(alpha)
    ratio = normal.pdf(alpha) / above
    expected = mean + deviation * ratio
    variance = deviation**2 * (1 + alpha * ratio - ratio**2)
    return expected, math.sqrt(variance) / expected


def prices(
    *, start_seconds: float = 0.0, queue_seconds: float = 0.0, billed_per: str = "instance", price_per_gb: float = 0.0
) -> PriceList:
    """Return p3.8xlarge: four accelerators, by the second, at least a minute for each instance."""
    minimum = 60.0 if billed_per == "instance" else 0.0
    instance = InstanceType(
        "p3.8xlarge", DEVICE, N_SLOTS, PRICE_PER_HOUR, billed_per=billed_per, minimum_seconds=minimum,
        price_per_gb=price_per_gb, queue=Latency(queue_seconds), initialisation=Latency(start_seconds),
    )  # fmt: skip
    return PriceList("p3.8xlarge", (instance,))


def resnet101(speedups: Mapping[int, float] = TABLE_2, *, is_extrapolated: bool = False, seed: int = 0) -> Simulator:
    """Return the job of tables 2 and 3: SHA(32, 1, 50, 3), 85 s an epoch, 15 s until an instance is ready."""
    job = halving(32, 1, 50, 3, profile(85.0, speedups, is_extrapolated=is_extrapolated))
    return Simulator(job, prices(start_seconds=15.0), seed=seed)
