"""Which numbers of slots are worth trying for a stage.

The paper steps only through divisors and multiples of the number of trials, so that shares are equal. If trials hop
over slots, or instances are paid as a whole, other numbers may be better, so this module also tries every small number
and every whole number of instances. It leaves out a number that is neither cheaper nor faster than another.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, isqrt

import numpy as np

from easeml_db.decisions.planner.prices import InstanceType
from easeml_db.decisions.planner.simulation import Allocation, Simulator

ALL_UP_TO = 32
GROWTH = 1.2
MAX_OPTIONS = 32  # of a stage and an instance type


def next_smaller(n_slots: int, n_trials: int) -> int | None:
    """Return the next smaller number of slots that is a divisor or a multiple of the number of trials."""
    # Above the number of trials only multiples qualify, below it only divisors.
    if n_slots > n_trials:
        return (n_slots - 1) // n_trials * n_trials
    return next((n for n in range(n_slots - 1, 0, -1) if n_trials % n == 0), None)


def candidates(n_trials: int, instance: InstanceType, max_width: int) -> list[int]:
    """Return numbers of slots to try, in ascending order."""
    most = min(instance.most_slots, max(n_trials * max_width, 1))
    sizes = set(range(1, min(ALL_UP_TO, most) + 1)) | {most}
    sizes |= _thin(divisor for k in range(1, isqrt(n_trials) + 1) if not n_trials % k for divisor in (k, n_trials // k))
    sizes |= _thin(n_trials * width for width in range(1, max_width + 1))
    sizes |= _thin(instance.n_slots * n for n in range(1, instance.n_instances(most) + 1))
    return sorted(n for n in sizes if n <= most)


def _thin(numbers: Iterable[int]) -> set[int]:
    """Return every small number, and of the larger ones some, each larger by a factor than the one before."""
    kept: set[int] = set()
    least = 0
    for number in sorted(numbers):
        if number >= least:
            kept.add(number)
            least = ceil(number * GROWTH) if number > ALL_UP_TO else number + 1
    return kept


def options(simulator: Simulator, stage: int, type_number: int) -> list[int]:
    """Return numbers of slots of which none is worse in every respect than another: instances held, slot seconds paid,
    time; growing."""
    instance = simulator.prices.types[type_number]
    n_trials = _n_at_once(simulator, stage)
    kept: list[tuple[int, float, float, int]] = []  # instances, price of the work, seconds, slots
    for n_slots in candidates(n_trials, instance, simulator.times.max_width(stage, instance)):
        time = simulator.times.of(stage, instance, n_slots)
        # Of whole instances the price follows from their number and the time, which are compared anyway.
        paid = float(time.busy_seconds.mean()) if instance.is_per_function else 0.0
        option = instance.n_instances(n_slots), paid, float(time.seconds.mean()), n_slots
        if not any(_is_no_worse(one, option) for one in kept):
            kept = [one for one in kept if not _is_no_worse(option, one)] + [option]
    return _spread(sorted(one[3] for one in kept))


def _n_at_once(simulator: Simulator, number: int) -> int:
    """Return how many trials may train during a stage: its own, and those of the next bracket if that begins."""
    stages = simulator.job.stages
    following = (stage.n_trials for stage in stages[number + 1 :] if not stage.is_continued)
    return stages[number].n_trials + (next(following, 0) if stages[number].is_overlapped else 0)


def _is_no_worse(one: tuple[int, float, float, int], other: tuple[int, float, float, int]) -> bool:
    return one[0] <= other[0] and one[1] <= other[1] * (1 + 1e-9) and one[2] <= other[2] * (1 + 1e-9)


def _spread(numbers: list[int]) -> list[int]:
    """Return at most MAX_OPTIONS of them, the first and the last among them."""
    if len(numbers) <= MAX_OPTIONS:
        return numbers
    # Evenly over the logarithm: the small ones are those that stages with few trials need.
    points = np.geomspace(numbers[0], numbers[-1], MAX_OPTIONS)
    return sorted({min(numbers, key=lambda number: abs(number - n)) for n in points})


def all_options(simulator: Simulator) -> list[list[Allocation]]:
    """Return what each stage may get, over all instance types."""
    return [
        [Allocation(k, n_slots) for k in simulator.types for n_slots in options(simulator, stage, k)]
        for stage in range(simulator.n_stages)
    ]
