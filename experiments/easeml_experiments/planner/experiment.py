"""RubberBand's tables 1 to 4 and figures 9 to 12 in simulation, and the planner on random jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from easeml_db.decisions.planner.planning import Goal, make_plans, plan_frontier
from easeml_db.decisions.planner.simulation import Simulator
from easeml_db.errors import InvalidArgument
from easeml_experiments.contract import Measure, Options, Result, at_most
from easeml_experiments.planner import coverage, executions, figures, plots, real, tables
from easeml_experiments.planner.kept_rows import rows_of
from easeml_experiments.planner.random_cases import against_all, against_static, cases
from easeml_experiments.planner.workloads import LOG_LOG, halving, prices, profile

Row = dict[str, Any]
QUICK_CASES, QUICK_SMALL_CASES = 3, 2
REAL = "real"
REPORT_EVERY = 200
WHY = (
    "Simulated, as the paper's figures are; table 2 of the paper was also run for real. Prices: 12.24 an hour for"
    " p3.8xlarge, which table 2's rows at 30 and 40 minutes imply; its static row at 20 minutes does not fit them (6"
    " instances for 0.32 h are 23.8, not 34), so our ratio there is smaller. Scaling beyond 4 GPUs is only drawn in"
    " the paper: 5 at 8 and flat beyond follows from table 2's own rows, log-log from table 1. Figure 12 depends on"
    " it: on log-log scaling a trial still gains at 64 GPUs, so a static cluster wastes little, and no plan whatever"
    " could save more than the last rows say; on a curve that saturates at 10, as the paper's words about tight"
    " deadlines suggest, the static cluster must be huge to keep 90 minutes. Figure 9: where the deviation is one of"
    " single iterations, it evens out over hundreds of them; where trials stay slow for a stage, it does not. The"
    " paper's order of magnitude is not reached either way. Iterations are truncated at 0.1 s, which makes the mean"
    " grow with sigma; the deadline is not given, 20 minutes are assumed for figures 9 and 10. Table 1 repeats the"
    " paper's two columns by how often trials lie on one instance. Table 4 prints no epoch times: they are set so that"
    " the best static plan costs what the paper's fixed cluster did, on table 2's scaling."
)


def run(options: Options) -> Result:
    """Make the tables and figures; then random jobs, against the best static plan and against all plans."""
    found: dict[str, Sequence[Row]] = {}
    for name in _parts(options):
        options.say(name)
        found[name] = MAKERS[name](options)
    return Result(tuple(_measures(found)), WHY, found, plots.charts(found))


def _parts(options: Options) -> list[str]:
    """Return the parts that are asked for: by default all that train nothing. Raises InvalidArgument."""
    only = options.values.get("only")
    if only is None:
        return [name for name in MAKERS if name != REAL or options.values.get("real")]
    names = [name.strip() for name in only.split(",")]
    unknown = [name for name in names if name not in MAKERS]
    if unknown:
        raise InvalidArgument(f"--only: expected some of {', '.join(MAKERS)}, got {unknown[0]!r}")
    return names


def _random(options: Options) -> list[Row]:
    n_cases = QUICK_CASES if options.is_quick else options.values["cases"]
    rows: list[Row] = []
    path, all_cases = options.values.get("rows"), cases(options.seed, n_cases)
    for row in rows_of(path, options.seed, all_cases, against_static, n_cases):
        rows.append(row)
        if len(rows) % REPORT_EVERY == 0:
            options.say(f"random: {len(rows)} of {n_cases}")
    return rows


def _small(options: Options) -> list[Row]:
    n_cases = QUICK_SMALL_CASES if options.is_quick else options.values["small_cases"]
    rows = []
    for case in cases(options.seed, n_cases, is_small=True):
        rows.append(against_all(case))
        if len(rows) % REPORT_EVERY == 0:
            options.say(f"all plans: {len(rows)} of {n_cases}")
    return rows


def _times(seed: int) -> list[Row]:
    """Return seconds of processor time for a plan of 10 stages, 512 trials, 20 samples, and for a frontier."""
    job = halving(512, 4, 4096, 2, profile(12.0, LOG_LOG, spread=0.3, is_extrapolated=True))
    rows = []
    for name in ("plan", "frontier"):
        began = time.process_time()
        simulator = Simulator(job, prices(start_seconds=15.0), n_samples=20, seed=seed)
        if name == "plan":
            make_plans(simulator, Goal(120 * 60.0))
        else:
            plan_frontier(simulator, 20)
        rows.append({"what": name, "seconds": time.process_time() - began})
    return rows


MAKERS: Mapping[str, Callable[[Options], list[Row]]] = MappingProxyType(
    {
        "table 1": lambda options: tables.table_1(options.seed, 40 if options.is_quick else 2000),
        "table 2": lambda options: tables.table_2(options.seed),
        "table 3": lambda options: tables.table_3(options.seed),
        "table 4": lambda options: tables.table_4(options.seed, 6 if options.is_quick else 40),
        "figure 9": lambda options: figures.figure_9(options.seed, is_quick=options.is_quick),
        "figure 10": lambda options: figures.figure_10(options.seed, is_quick=options.is_quick),
        "figure 11": lambda options: figures.figure_11(options.seed, is_quick=options.is_quick),
        "figure 12": lambda options: figures.figure_12(options.seed, is_quick=options.is_quick),
        "random": _random,
        "all plans": _small,
        "times": lambda options: _times(options.seed),
        "executions": lambda options: executions.executions(options.seed, 2 if options.is_quick else 200),
        "coverage": lambda options: coverage.coverage(options.seed, 20 if options.is_quick else 200),
        REAL: real.train,
    }
)


def _measures(parts: Mapping[str, Sequence[Row]]) -> Iterator[Measure]:
    for name, measure in MEASURES.items():
        if parts.get(name):
            yield from measure(parts[name])


def _random_measures(rows: Sequence[Row]) -> Iterator[Measure]:
    wrong = sum(row["is_dearer"] or row["is_late"] for row in rows)
    yield at_most("plans dearer than the best static one, or late", f"{len(rows)} random jobs", None, wrong, 0)


def _small_measures(rows: Sequence[Row]) -> Iterator[Measure]:
    ratios = [row["ratio"] for row in rows]
    where = f"{len(ratios)} random jobs of at most 4 stages and 16 slots"
    yield at_most("cost, planned / best of all plans, mean", where, None, sum(ratios) / len(ratios), 1.02)
    yield at_most("cost, planned / best of all plans, worst", where, None, max(ratios), 1.15)


def _times_measures(rows: Sequence[Row]) -> Iterator[Measure]:
    limits = {"plan": 1.0, "frontier": 10.0}
    for row in rows:
        name = f"seconds of processor time, {row['what']}"
        yield at_most(name, "10 stages, 512 trials, 20 samples", None, row["seconds"], limits[row["what"]])


MEASURES: Mapping[str, Callable[[Sequence[Row]], Iterator[Measure]]] = MappingProxyType(
    {
        "table 1": tables.table_1_measures,
        "table 2": tables.table_2_measures,
        "table 4": tables.table_4_measures,
        "figure 9": figures.figure_9_measures,
        "figure 10": figures.figure_10_measures,
        "figure 11": figures.figure_11_measures,
        "figure 12": figures.figure_12_measures,
        "random": _random_measures,
        "all plans": _small_measures,
        "executions": executions.measures,
        "coverage": coverage.measures,
        "times": _times_measures,
        REAL: real.measures,
    }
)
