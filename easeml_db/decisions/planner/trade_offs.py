"""All worthwhile plans between the fastest and the cheapest, by dynamic programming.

The expected time of a plan is the sum of the times of its stages and of the changes of allocation between them; so is
the expected cost, except for minimum charges. Plans for the first stages that end in the same allocation therefore
differ only in time and cost. Of these, those that no other beats in both are kept, thinned if there are very many.
Minimum charges are counted once as if each instance lived for one stage and once not at all; the plans of both are then
simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from easeml_db.decisions.planner.job import Vector
from easeml_db.decisions.planner.prices import QUANTA
from easeml_db.decisions.planner.simulation import NOTHING, Allocation, Held, Plan, Simulator
from easeml_db.decisions.planner.steps import all_options

Places = npt.NDArray[np.int64]
MAX_LABELS = 64


class _Labels(NamedTuple):
    """Plans for the first stages that end in one allocation: time, cost, and which label of the stage before each goes
    on from (place of the allocation, place of the label)."""

    seconds: Vector
    cost: Vector
    parents: Places


def trade_offs(simulator: Simulator, held: Held = NOTHING) -> list[Plan]:
    """Return plans of which none is both faster and cheaper than another, the fastest first, by expected values."""
    choices = all_options(simulator)
    has_minimum = any(
        not instance.is_per_function and (instance.minimum_seconds or QUANTA[instance.billed_by])
        for instance in (simulator.prices.types[k] for k in simulator.types)
    )
    plans: dict[Plan, None] = {}
    for with_minimum in (False, True) if has_minimum else (False,):
        plans.update(dict.fromkeys(_Search(simulator, choices, held, with_minimum=with_minimum).plans()))
    return list(plans)


class _Search:
    """One pass over the stages."""

    def __init__(
        self, simulator: Simulator, choices: Sequence[Sequence[Allocation]], held: Held, *, with_minimum: bool
    ) -> None:
        self._simulator, self._choices, self._with_minimum = simulator, choices, with_minimum
        self._held = held

    def plans(self) -> list[Plan]:
        """Return the plans, the fastest first."""
        before: Sequence[Allocation] = [Allocation(self._held.type_number, self._held.n_slots)]
        layers = [[_Labels(np.zeros(1), np.zeros(1), np.zeros((1, 2), int))]]
        for stage, options in enumerate(self._choices):
            layers.append(self._layer(stage, before, layers[-1]))
            before = options
        merged, parents = _merged(layers[-1])
        kept = _undominated(merged.seconds, merged.cost)
        return [self._traced(layers, *parents[k]) for k in kept]

    def _layer(self, stage: int, before: Sequence[Allocation], labels: Sequence[_Labels]) -> list[_Labels]:
        """Return the plans that continue with each allocation of a stage."""
        merged, parents = _merged(labels)
        sizes = [len(one.cost) for one in labels]
        layer = []
        for option in self._choices[stage]:
            seconds, cost = self._steps(stage, before, option)
            all_seconds, all_costs = merged.seconds + np.repeat(seconds, sizes), merged.cost + np.repeat(cost, sizes)
            kept = _thinned(_undominated(all_seconds, all_costs), all_seconds)
            layer.append(_Labels(all_seconds[kept], all_costs[kept], parents[kept]))
        return layer

    def _steps(self, stage: int, before: Sequence[Allocation], after: Allocation) -> tuple[Vector, Vector]:
        """Return expected seconds and cost of a stage for each allocation of the stage before."""
        instance = self._simulator.prices.types[after.type_number]
        time = self._simulator.times.of(stage, instance, after.n_slots)
        train, busy = float(time.seconds.mean()), float(time.busy_seconds.mean())
        n_all = instance.n_instances(after.n_slots)
        seconds, costs = np.empty(len(before)), np.empty(len(before))
        for place, old in enumerate(before):
            n_old = min(n_all, instance.n_instances(old.n_slots)) if old.type_number == after.type_number else 0
            queue, start = self._simulator.mean_start_seconds(stage, after.type_number, n_all - n_old)
            seconds[place] = queue + start + train
            costs[place] = (n_all - n_old) * instance.price_per_gb * self._simulator.job.data_gb
            if instance.is_per_function:
                costs[place] += busy * instance.price_per_slot_second
            else:
                # Instances that stay are billed while new ones are in the provider's queue; new ones only from then on.
                new = (n_all - n_old) * self._billed(after.type_number, start + train)
                costs[place] += (n_old * seconds[place] + new) * instance.price_per_second
        return seconds, costs

    def _billed(self, type_number: int, seconds: float) -> float:
        instance = self._simulator.prices.types[type_number]
        if not self._with_minimum:
            return seconds
        # A started quantum is paid as a whole: half of one more on average.
        return max(seconds + QUANTA[instance.billed_by] / 2, instance.minimum_seconds)

    def _traced(self, layers: Sequence[Sequence[_Labels]], option: int, place: int) -> Plan:
        plan = []
        for stage in range(len(self._choices) - 1, -1, -1):
            plan.append(self._choices[stage][option])
            option, place = layers[stage + 1][option].parents[place]
        return tuple(reversed(plan))


def _merged(labels: Sequence[_Labels]) -> tuple[_Labels, Places]:
    """Return all labels of a stage one after the other, and the position of each."""
    places = [
        np.stack([np.full(len(one.cost), place), np.arange(len(one.cost))], axis=1) for place, one in enumerate(labels)
    ]
    columns = (np.concatenate(column) for column in zip(*labels, strict=True))
    return _Labels(*columns), np.concatenate(places)


def _undominated(seconds: Vector, costs: Vector) -> Places:
    """Return the places of those that no other beats in both, the fastest first."""
    order = np.lexsort((costs, seconds))
    least = np.minimum.accumulate(costs[order])
    is_kept = np.ones(len(order), bool)
    # In order of time a plan must be cheaper than all faster ones, by more than rounding.
    is_kept[1:] = costs[order][1:] < least[:-1] * (1 - 1e-12)
    kept: Places = order[is_kept]
    return kept


def _thinned(places: Places, seconds: Vector) -> Places:
    """Keep at most MAX_LABELS, evenly spread over the logarithm of time."""
    if len(places) <= MAX_LABELS:
        return places
    logs = np.log(np.maximum(seconds[places], 1e-9))
    points = np.linspace(logs[0], logs[-1], MAX_LABELS)
    nearest = np.searchsorted(logs, points).clip(0, len(places) - 1)
    kept: Places = places[np.unique(nearest)]
    return kept
