"""Tuning jobs as trial groups: rungs of the procedures as values. A trial's epochs take lognormal(sigma) seconds.

Who is promoted is drawn without regard to speed. Rungs count epochs in total: a rung trains what the last one has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from easeml_db.decisions.trial_groups.contract import Budget, TrialGroup

ETA, R = 3, 81
N_GRID, GRID_EPOCHS = 27, 27
N_ASHA = 729
POPULATION, N_INTERVALS, INTERVAL_EPOCHS, COPIED = 16, 16, 5, 0.2
SIGMA = 0.3
Job = list[TrialGroup]
Rung = tuple[int, int]  # trials, epochs in total


@dataclass(frozen=True)
class Speeds:
    """Seconds that an epoch of each trial takes on one device of its own, drawn as trials come."""

    rng: np.random.Generator
    sigma: float = SIGMA

    def draw(self, n_trials: int) -> list[float]:
        """Draw a speed for each trial."""
        return [float(speed) for speed in self.rng.lognormal(0.0, self.sigma, n_trials)]

    def keep(self, speeds: Sequence[float], n_trials: int) -> list[float]:
        """Return the speeds of `n_trials` trials that are promoted: drawn without regard to speed."""
        chosen = self.rng.choice(len(speeds), n_trials, replace=False)
        return [speeds[place] for place in chosen]


def brackets(most_epochs: int = R, eta: int = ETA) -> list[list[Rung]]:
    """Return the rungs of each of Hyperband's brackets, the one with most trials first."""
    s_max = 0
    while eta ** (s_max + 1) <= most_epochs:
        s_max += 1
    return [
        [(_n_first(s, s_max, eta) // eta**i, most_epochs // eta ** (s - i)) for i in range(s + 1)]
        for s in range(s_max, -1, -1)
    ]


def _n_first(s: int, s_max: int, eta: int) -> int:
    return int(-(-(s_max + 1) * eta**s // (s + 1)))


def group(
    number: int, speeds: Sequence[float], epochs: int, *, after: Sequence[int] = (), priority: int = 0
) -> TrialGroup:
    """Return trials of these speeds, so many epochs each."""
    budgets = tuple(Budget(place, speed * epochs) for place, speed in enumerate(speeds))
    return TrialGroup(number, budgets, priority, frozenset(after))


def grid(speeds: Speeds, *, n_trials: int = N_GRID, epochs: int = GRID_EPOCHS) -> Job:
    """Return all trials at once, in one group."""
    return [group(0, speeds.draw(n_trials), epochs)]


def pbt(speeds: Speeds) -> Job:
    """Return a population's rounds; after each the worst fifth goes on as copies of some of the best fifth."""
    population, job, n_copied = speeds.draw(POPULATION), Job(), int(COPIED * POPULATION)
    for number in range(N_INTERVALS):
        job.append(group(number, population, INTERVAL_EPOCHS, after=range(number)[-1:]))
        ranked = speeds.keep(population, POPULATION)
        population = ranked[:-n_copied] + speeds.keep(ranked[:n_copied], n_copied)
    return job


def synchronous(speeds: Speeds) -> Job:
    """Return Hyperband's brackets, a barrier after each rung, and the next bracket after the last has ended."""
    return list(_brackets(speeds, is_synchronous=True))


def asynchronous(speeds: Speeds) -> Job:
    """Return Hyperband's brackets, all open: a barrier after each rung, and earlier brackets go first."""
    return list(_brackets(speeds, is_synchronous=False))


def _brackets(speeds: Speeds, *, is_synchronous: bool) -> Iterator[TrialGroup]:
    number = 0
    for place, rungs in enumerate(brackets()):
        going_on, trained = speeds.draw(rungs[0][0]), 0
        for rung, (n_trials, epochs) in enumerate(rungs):
            going_on = speeds.keep(going_on, n_trials)
            waits = (number - 1,) if number and (rung or is_synchronous) else ()
            yield group(number, going_on, epochs - trained, after=waits, priority=-place)
            number, trained = number + 1, epochs


def asha(speeds: Speeds, *, n_trials: int = N_ASHA) -> Job:
    """Let one of each `ETA` trials that have ended in a rung go on at once, before anything below it.

    Which `ETA` trials compete is fixed, in order of their start, so that the work is the same however it is run.
    """
    job, rung, epochs, trained = Job(), 0, 1, 0
    competing: list[tuple[float, tuple[int, ...]]] = [(speed, ()) for speed in speeds.draw(n_trials)]
    while competing and epochs <= R:
        first = len(job)
        for place, (speed, after) in enumerate(competing):
            job.append(group(first + place, [speed], epochs - trained, after=after, priority=rung))
        competing = [
            (
                speeds.keep([speed for speed, _ in competing[i : i + ETA]], 1)[0],
                tuple(range(first + i, first + i + ETA)),
            )
            for i in range(0, len(competing) - ETA + 1, ETA)
        ]
        rung, epochs, trained = rung + 1, epochs * ETA, epochs
    return job


PROCEDURES: Mapping[str, Callable[[Speeds], Job]] = MappingProxyType(
    {
        "grid": grid,
        "PBT": pbt,
        "Hyperband": synchronous,
        "ASHA": asha,
        "synchronous BOHB": synchronous,
        "BOHB": asynchronous,
    }
)
