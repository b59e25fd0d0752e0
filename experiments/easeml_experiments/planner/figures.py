"""Figures 9 to 12 of the paper: what stragglers, the price of data, the size of a job and start latencies do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from easeml_db.decisions.planner.job import Job
from easeml_experiments.contract import Measure, at_least
from easeml_experiments.planner.tables import costs
from easeml_experiments.planner.workloads import (
    LOG_LOG,
    PRICE_PER_HOUR,
    SATURATING,
    halving,
    prices,
    profile,
    truncated,
)

Row = dict[str, Any]
BILLINGS = ("instance", "function")
CURVES: Mapping[str, tuple[Mapping[int, float], bool]] = {
    "log-log": (LOG_LOG, True),
    "saturating at 10": (SATURATING, False),
}
IMAGENET_GB, CIFAR_GB = 150.0, 0.15


def small_job(n_trials: int = 64, deviation: float = 0.0, *, is_lasting: bool = False) -> Job:
    """Make SHA(k, 4, 508), 4 s an iteration, on table 1's scaling; `is_lasting`: trials are slow for a whole stage."""
    mean, spread = truncated(4.0, deviation) if deviation else (4.0, 0.0)
    plain = profile(mean, LOG_LOG, spread=spread, is_extrapolated=True)
    lasting = replace(plain, spread=0.0, trial_spread=spread)
    return halving(n_trials, 4, 508, 2, lasting if is_lasting else plain)


def figure_9(seed: int, *, is_quick: bool) -> list[Row]:
    """Return the cost by the standard deviation of an iteration, by instance and by function, at 20 minutes."""
    rows = []
    for kind in ("iterations", "trials"):
        for sigma in (1, 10) if is_quick else range(1, 11):
            job = small_job(deviation=float(sigma), is_lasting=kind == "trials")
            for scope in BILLINGS:
                found = costs(job, prices(billed_per=scope), 20, seed)
                rows.append({"kind": kind, "sigma": sigma, "billed_per": scope, **found})
    return rows


def figure_10(seed: int, *, is_quick: bool) -> list[Row]:
    """Return the cost by the price of a GB, for ImageNet and for CIFAR-10."""
    rows = []
    for name, gigabytes in (("ImageNet", IMAGENET_GB), ("CIFAR-10", CIFAR_GB)):
        job = replace(small_job(), data_gb=gigabytes)
        for price in (0.0, 0.16) if is_quick else (0.0, 0.01, 0.02, 0.04, 0.08, 0.12, 0.16):
            rows.append({"data": name, "price_per_gb": price, **costs(job, prices(price_per_gb=price), 20, seed)})
    return rows


def figure_11(seed: int, *, is_quick: bool) -> list[Row]:
    """Return the cost by the number of trials, by instance and by function."""
    return [
        {"n_trials": n_trials, "billed_per": scope, **costs(small_job(n_trials), prices(billed_per=scope), 20, seed)}
        for n_trials in ((16, 64) if is_quick else (16, 32, 64, 128, 256, 512))
        for scope in BILLINGS
    ]


def figure_12(seed: int, *, is_quick: bool) -> list[Row]:
    """Return the cost by start latency and deadline: SHA(512, 4, 4096), 12 s an iteration at one accelerator."""
    rows = []
    for curve, (speedups, is_extrapolated) in CURVES.items():
        job = halving(512, 4, 4096, 2, profile(12.0, speedups, is_extrapolated=is_extrapolated))
        for start in (1.0, 10.0) if is_quick else (1.0, 10.0, 100.0):
            for minutes in (90,) if is_quick else range(90, 161, 10):
                found = costs(job, prices(start_seconds=start), minutes, seed)
                rows.append({"curve": curve, "start_seconds": start, "minutes": minutes, **found})
    return rows


def least_cost_of_figure_12() -> float:
    """Return what all its iterations cost at one accelerator each, with no slot ever idle: no plan is cheaper."""
    job = halving(512, 4, 4096, 2, profile(12.0, LOG_LOG))
    seconds = sum(stage.n_trials * stage.n_epochs * 12.0 for stage in job.stages)
    return seconds / 3600 * PRICE_PER_HOUR / 4


def figure_9_measures(rows: Sequence[Row]) -> Iterator[Measure]:
    """Yield what the paper says of figure 9: by instance against by function."""
    cost = {(row["kind"], row["sigma"], row["billed_per"]): row["planned"] for row in rows}
    name = "cost of the plan, by instance / by function"
    for kind, sigma, scope in cost:
        by_function = cost[kind, sigma, "function"]
        if scope == "instance" and sigma in (1, 10) and by_function and cost[kind, sigma, scope]:
            paper = "about 10" if sigma == 10 else None
            where = f"figure 9, sigma {sigma}, of {kind}"
            yield Measure(name, where, paper, cost[kind, sigma, scope] / by_function)


def figure_10_measures(rows: Sequence[Row]) -> Iterator[Measure]:
    """Yield what the paper says of figure 10: the gain at the dearest data."""
    dearest = max(row["price_per_gb"] for row in rows)
    for row in rows:
        if row["price_per_gb"] == dearest:
            paper = "about 1.5" if row["data"] == "CIFAR-10" else "little more than 1"
            where = f"figure 10, {row['data']} at {dearest:g} a GB"
            yield at_least("cost, best static / planned", where, paper, row["ratio"], 1.0)


def figure_11_measures(rows: Sequence[Row]) -> Iterator[Measure]:
    """Yield what the paper says of figure 11: the gain over sizes of jobs."""
    for scope in BILLINGS:
        mine = [row for row in rows if row["billed_per"] == scope and row["ratio"] is not None]
        where = f"figure 11, by {scope}, least over sizes"
        yield at_least("cost, best static / planned", where, "above 1", min(row["ratio"] for row in mine), 1.0)
        gaps = [row["static"] - row["planned"] for row in mine]
        growth = gaps[-1] - gaps[0]
        yield Measure("cost, static less planned, most trials less fewest", f"figure 11, by {scope}", "grows", growth)


def figure_12_measures(rows: Sequence[Row]) -> Iterator[Measure]:
    """Yield what the paper says of figure 12: the gain at its best over the deadlines."""
    name = "cost, best static / planned, at best over deadlines"
    for curve in CURVES:
        for start in sorted({row["start_seconds"] for row in rows}):
            mine = [row for row in rows if (row["curve"], row["start_seconds"]) == (curve, start) and row["ratio"]]
            where = f"figure 12, start {start:g} s, {curve}"
            best = max(row["ratio"] for row in mine)
            yield at_least(name, where, 3.5, best, 2.5) if start == 1.0 else Measure(name, where, None, best)
    tight = {(row["curve"], row["start_seconds"]): row for row in rows if row["minutes"] == 90}
    for curve in CURVES:
        ratio = tight[curve, 10.0]["planned"] / tight[curve, 1.0]["planned"]
        yield Measure("cost of the plan, start 10 s / 1 s", f"figure 12, 90 min, {curve}", "nearly 2", ratio)
    least = min(row["static"] for row in rows if row["curve"] == "log-log" and row["start_seconds"] == 1.0)
    worst = max(row["static"] for row in rows if row["curve"] == "log-log" and row["start_seconds"] == 1.0)
    bound = least_cost_of_figure_12()
    yield Measure(
        "cost, best static / least that any plan can cost", "figure 12, log-log, cheapest", None, least / bound
    )
    yield Measure(
        "cost, best static / least that any plan can cost", "figure 12, log-log, dearest", None, worst / bound
    )
