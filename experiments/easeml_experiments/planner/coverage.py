"""Forecasts of simulated runs after a tenth of their units, beside when they ended: does the interval hold as often as
it says?"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from easeml_db.decisions.planner.envelope import Past
from easeml_db.decisions.planner.forecast import SlotsHeld, forecast
from easeml_db.decisions.planner.knowledge import Knowledge
from easeml_db.decisions.planner.remaining import ArmState, TrialState, remaining_stages
from easeml_experiments.contract import Measure

Row = dict[str, Any]
SHARE = 0.1  # of the units that are done when a run is forecast
SPREAD, UNIT_SECONDS = 0.3, 5.0
N_PARTITIONS = 2
LEAST, MOST = 0.85, 0.95
NAME = "net"


@dataclass(frozen=True)
class _Sizes:
    """Of a run, drawn at random."""

    n_trials: int
    n_epochs: int
    n_slots: int


class _Life:
    """A run of trials on slots, longest remaining first, with unit times that are drawn as they come."""

    def __init__(self, rng: np.random.Generator, sizes: _Sizes) -> None:
        self._rng, self._n_slots = rng, sizes.n_slots
        self.left = dict.fromkeys(range(sizes.n_trials), sizes.n_epochs * N_PARTITIONS)
        self.seconds: dict[int, list[float]] = {k: [] for k in range(sizes.n_trials)}
        self.now = 0.0
        self._running: list[tuple[float, int, float]] = []
        self._n_units = sum(self.left.values())

    def play(self, share: float) -> None:
        """Go on until so much of all units is done."""
        while sum(self.left.values()) > (1 - share) * self._n_units:
            busy = {k for _, k, _ in self._running}
            idle = sorted((k for k, n in self.left.items() if n and k not in busy), key=lambda k: -self.left[k])
            for k in idle[: self._n_slots - len(self._running)]:
                unit = float(UNIT_SECONDS * self._rng.lognormal(0, SPREAD))
                heapq.heappush(self._running, (self.now + unit, k, unit))
            self.now, k, unit = heapq.heappop(self._running)
            self.left[k] -= 1
            self.seconds[k].append(unit)

    def known(self) -> Knowledge:
        """Return what its units so far say."""
        rows = [
            {"architecture": NAME, "device_kind": "cpu", "n_slots": 1, "is_same": True, "scale": 1,
             "n_epochs": len(some) / N_PARTITIONS, "epoch_seconds": N_PARTITIONS * float(np.mean(some)),
             "sd_seconds": UNIT_SECONDS * SPREAD * N_PARTITIONS**0.5}
            for some in self.seconds.values() if some
        ]  # fmt: skip
        known = {
            "trials": rows, "speedups": None, "whole": [], "joint": [], "n_partitions": N_PARTITIONS, "curves": None,
        }  # fmt: skip
        return Knowledge(known, "d")


def coverage(seed: int, n_runs: int) -> list[Row]:
    """Forecast random runs after a tenth of their units; return a row for each, with what it really took then."""
    return [_forecast(seed + number) for number in range(n_runs)]


def _forecast(seed: int) -> Row:
    rng = np.random.default_rng(seed)
    n_slots = int(rng.integers(2, 6))
    life = _Life(rng, _Sizes(int(rng.integers(8, 24)), int(rng.integers(4, 12)), n_slots))
    life.play(SHARE)
    began = life.now
    trials = [TrialState(NAME, NAME, 0, 0.0, n / N_PARTITIONS, True) for n in life.left.values()]
    stages = remaining_stages(None, [ArmState(NAME, trials)], Past({}, {}))
    found = forecast(
        stages, life.known().profiles([NAME], ["cpu"], is_local=True), SlotsHeld("cpu", n_slots), seed=seed
    )
    life.play(1.0)
    left = life.now - began
    return {
        "run": seed, "seconds_left": left, "forecast": found.seconds, "least": found.seconds_least,
        "most": found.seconds_most, "holds": found.seconds_least <= left <= found.seconds_most,
    }  # fmt: skip


def measures(rows: Sequence[Row]) -> Iterator[Measure]:
    """Yield how often the interval holds that promises 90 %, and how far off the forecasts are."""
    if rows:
        where = f"{len(rows)} runs, units spread by {SPREAD}, after a tenth of their units"
        held = sum(row["holds"] for row in rows) / len(rows)
        is_kept = LEAST <= held <= MOST
        yield Measure("runs that end within the 90 % interval", where, None, held, f"{LEAST:g} to {MOST:g}", is_kept)
        errors = [abs(row["forecast"] / row["seconds_left"] - 1) for row in rows]
        yield Measure("time forecast, median relative error", where, None, median(errors))
