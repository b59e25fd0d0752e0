"""Plans without this planner: one cluster for all stages, and a fixed number of slots for each trial."""

from __future__ import annotations

from collections.abc import Iterator

from easeml_db.decisions.planner.simulation import Allocation, Plan, Simulator
from easeml_db.decisions.planner.steps import candidates


def static_plans(simulator: Simulator) -> Iterator[Plan]:
    """Yield every cluster that stays the same over all stages."""
    for k in simulator.types:
        instance = simulator.prices.types[k]
        sizes: set[int] = set()
        for number, stage in enumerate(simulator.job.stages):
            # A size that suits any of the stages counts: the cluster serves them all.
            sizes |= set(candidates(stage.n_trials, instance, simulator.times.max_width(number, instance)))
        for n_slots in sorted(sizes):
            yield (Allocation(k, n_slots),) * simulator.n_stages


def naive_elastic_plans(simulator: Simulator) -> Iterator[Plan]:
    """Yield every plan with the same number of slots for each trial in all stages."""
    sizes = [stage.n_trials for stage in simulator.job.stages]
    for k in simulator.types:
        instance = simulator.prices.types[k]
        widest = max(simulator.times.max_width(stage, instance) for stage in range(simulator.n_stages))
        for width in range(1, min(widest, instance.most_slots // max(sizes)) + 1):
            yield tuple(Allocation(k, width * n_trials) for n_trials in sizes)
