"""A tuning job without and with water-filling, over seeds: rows of makespans and utilisation.

The testbed's overheads are not printed. Here, unless a figure says otherwise: alpha 1.2, beta 1.1, c 2, d 4, a resize
costs 0.05 epochs of a middling trial, which reports ten times an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from easeml_db.decisions.trial_groups.dynamic_fluid import Resizing
from easeml_db.decisions.trial_groups.fluid_simulation import Filled, Outcome, simulate
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_experiments.fluid.workload import SIGMA, Job, Speeds

ALPHA, BETA, C, D = 1.2, 1.1, 2, 4
PROFILE = Profile(ALPHA, BETA, C, D)
RESIZE_SECONDS, REPORT_SECONDS = 0.05, 0.1  # a middling trial's epoch takes a second
FILLED = Filled(Resizing(RESIZE_SECONDS), REPORT_SECONDS)
SIZES = (4, 8, 16)
Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A point of a figure: a job on so many devices."""

    figure: str
    name: str
    make: Callable[[Speeds], Job]
    n_devices: int
    profile: Profile = PROFILE
    sigma: float = SIGMA

    @property
    def drawn_for(self) -> str:
        """Points of the same name here have the same draws: all of a figure, each procedure of figure 7."""
        return f"{self.figure} {self.name}" if self.figure == "7" else self.figure


def compare(cell: Cell, seeds: Sequence[int]) -> Iterator[Row]:
    """Simulate the same trials, at the same speeds, without and with water-filling; return a row for each seed."""
    for seed in seeds:
        job = cell.make(Speeds(np.random.default_rng((seed, *map(ord, cell.drawn_for))), cell.sigma))
        without = simulate(job, cell.n_devices, cell.profile, None)
        filled = simulate(job, cell.n_devices, cell.profile, FILLED)
        yield {
            "figure": cell.figure, "setting": cell.name, "n_devices": cell.n_devices, "seed": seed,
            **_columns("without", without, cell.profile), **_columns("with", filled, cell.profile),
            "n_resizes": filled.n_resizes, "ratio": without.makespan_seconds / filled.makespan_seconds,
        }  # fmt: skip


def _columns(name: str, outcome: Outcome, profile: Profile) -> Row:
    return {
        f"makespan_{name}": outcome.makespan_seconds,
        f"busy_{name}": outcome.busy_share,
        f"utilisation_{name}": outcome.utilisation(profile),
    }


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return means over seeds, and the least and the deviation of the ratio, one row for each point."""
    points: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        points.setdefault((row["figure"], row["setting"], row["n_devices"]), []).append(row)
    return [_mean(mine) for mine in points.values()]


def _mean(rows: Sequence[Row]) -> Row:
    ratios = [row["ratio"] for row in rows]
    names = [name for name in rows[0] if name.startswith(("makespan", "busy", "utilisation", "n_resizes"))]
    return {
        **{name: rows[0][name] for name in ("figure", "setting", "n_devices")},
        **{name: fmean(row[name] for row in rows) for name in names},
        "ratio": fmean(ratios), "ratio_least": min(ratios), "ratio_most": max(ratios),
        "ratio_deviation": stdev(ratios) if len(ratios) > 1 else 0.0,
    }  # fmt: skip
