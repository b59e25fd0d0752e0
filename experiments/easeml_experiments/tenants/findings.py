"""Measures of figures 10 to 15, and of what the paper does not have: fifty tenants, devices, regret, decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from easeml_experiments.contract import Measure, at_most
from easeml_experiments.tenants.cells import (
    COST_AWARE,
    DEEPLEARNING,
    DEVICES,
    FIFTY,
    N_DEVICES,
    PRIOR_SHARES,
    RUNS,
    SYN_COSTS,
    SYN_LITERAL,
)  # fmt: skip
from easeml_experiments.tenants.curves import ratio
from easeml_experiments.tenants.judging import at_all_losses, frozen, interval, judged, present, ratios_at
from easeml_experiments.tenants.protocol import Cell
from easeml_experiments.tenants.replay import log_slope
from easeml_experiments.tenants.replay_cache import SYN, ReplayCache


def without_costs(replays: ReplayCache) -> Iterator[Measure]:
    """Measure round robin and random relative to hybrid and ours, all costs 1."""
    yield from _turns(replays, RUNS.values(), "up to 1.9 on real data")


def with_costs(replays: ReplayCache) -> Iterator[Measure]:
    """Measure the same with costs."""
    yield from _turns(replays, (*COST_AWARE.values(), *SYN_COSTS.values()), None)


def _turns(replays: ReplayCache, cells: Iterable[Cell], paper: str | None) -> Iterator[Measure]:
    unit = ", all costs 1"
    for cell in present(replays, cells):
        for above in ("round_robin", "random"):
            for below in ("hybrid", "ours"):
                for one in at_all_losses(replays, cell, above, below, None if cell.data in SYN else paper):
                    if "greatest" in one.name:
                        yield replace(one, setting=one.setting.replace(cell.data, cell.data + unit * cell.is_unit_cost))
        yield frozen(replays, cell)
    yield Measure("round_robin / hybrid, greatest ratio of costs", "AZUREMLBENCH", paper, "unavailable")


def correlation(replays: ReplayCache) -> Iterator[Measure]:
    """Measure the loss at a tenth of the cost in the eight synthetic settings."""
    cells = [*SYN_COSTS.values(), *SYN_LITERAL.values()]
    for cell in cells:
        for name in ("hybrid", "ours"):
            curves = replays[cell].losses(name)
            start = float(curves.mean(np.array([0.0]))[0])
            at = float(curves.mean(np.array([0.1]))[0])
            yield Measure(f"{name}: mean loss at 10 % of the cost", f"{cell.data}, at first {start:.3g}", None, at)
    for literal in ("", " literal"):
        for alpha in ("0.1", "1"):
            yield _harder(replays, "sM = 0.01 / sM = 0.5", f"(0.01,{alpha}){literal}", f"(0.5,{alpha}){literal}")
        for s_m in ("0.01", "0.5"):
            yield _harder(replays, "alpha = 0.1 / alpha = 1", f"({s_m},0.1){literal}", f"({s_m},1){literal}")


def _harder(replays: ReplayCache, what: str, above: str, below: str) -> Measure:
    """Measure how much more one setting costs hybrid than another, of which the paper says that it is easier."""
    cells, levels = SYN_COSTS | SYN_LITERAL, np.array([0.02])
    costs = [float(replays[cells[f"SYN{each}"]].losses("hybrid").cost_to(levels)[0]) for each in (above, below)]
    value = costs[0] / costs[1] if costs[1] > 0 else float("nan")
    return judged(f"hybrid: cost to loss 0.02, {what}", f"SYN{above} / SYN{below}", "> 1", value, None)


def lesion(replays: ReplayCache) -> Iterator[Measure]:
    """Measure deciding as if all costs were 1, relative to deciding with costs."""
    if replays.has("DEEPLEARNING"):
        for name in ("hybrid", "ours"):
            yield from ratios_at(replays, DEEPLEARNING, f"{name}_without_cost", name, (0.02, 0.01))


def fewer_users(replays: ReplayCache) -> Iterator[Measure]:
    """Measure priors from fewer users, relative to all of them."""
    for data in ("DEEPLEARNING", "179CLASSIFIER"):
        for name in ("hybrid", "ours") if replays.has(data) else ():
            full = replays[COST_AWARE[data]].losses(name)
            for share in PRIOR_SHARES[:-1]:
                part = replays[replace(COST_AWARE[data], train_share=share)].losses(name)
                found = ratio(part, full, 0.02, replays.draws)
                paper = "near 1" if share == 0.5 else "> 1"
                title = f"{name}: prior from {share:.0%} / from 100% of users, cost to loss 0.02"
                yield judged(title, f"{data}; {interval(found)}", paper, found.value, None)


def greedy_and_hybrid(replays: ReplayCache) -> Iterator[Measure]:
    """Measure where the turns overtake greedy, and what hybrid makes of it."""
    cell = RUNS["179CLASSIFIER"]
    if not replays.has(cell.data):
        return
    for level in (0.05, 0.02, 0.01, 0.005):
        for name in ("greedy", "hybrid"):
            found = ratio(replays[cell].losses("round_robin"), replays[cell].losses(name), level, replays.draws)
            where = f"{cell.data}, all costs 1; {interval(found)}"
            yield judged(f"round_robin / {name}, runs to loss {level:g}", where, None, found.value, None)
    yield frozen(replays, cell)


def fifty(replays: ReplayCache) -> Iterator[Measure]:
    """Measure fifty tenants."""
    for cell in present(replays, FIFTY.values()):
        named = f"{cell.data}, {cell.n_tested} tenants"
        for above, below in (("hybrid", "ours"), ("spearmint", "ours"), ("round_robin", "hybrid")):
            for one in ratios_at(replays, cell, above, below, (0.02, 0.01)):
                yield replace(one, setting=one.setting.replace(cell.data, named))
        yield frozen(replays, cell)


def devices(replays: ReplayCache) -> Iterator[Measure]:
    """Measure the time to loss 0.02 on several devices."""
    levels = np.array([0.02])
    for data, cell in DEVICES.items():
        for name in ("hybrid", "ours") if replays.has(data) else ():
            alone = float(replays[replace(cell, n_devices=1)].losses(name).cost_to(levels)[0])
            for n in N_DEVICES:
                seconds = float(replays[replace(cell, n_devices=n)].losses(name).cost_to(levels)[0])
                where = f"{data}, {n} device{'s' * (n > 1)}; {100 * seconds:.3g} % of one device's time"
                yield judged(f"{name}: speed-up of the time to loss 0.02", where, None, alone / seconds, None)


def regret_slopes(replays: ReplayCache) -> Iterator[Measure]:
    """Measure the slopes of log regret over the last half of the rounds."""
    for case, regrets in replays.regrets.items():
        title, value = f"{case.policy}: log-log slope of regret", log_slope(regrets)
        where = f"{case.setting}, T = {len(regrets):,}"
        yield Measure(title, where, "< 1", value) if case.is_literal else at_most(title, where, "< 1", value, 0.8)


def decisions(replays: ReplayCache) -> Iterator[Measure]:
    """Measure what a decision costs."""
    for row in replays.decisions:
        where = f"{row['tenants']:,} tenants x {row['arms']} arms, {row['strategy']}; p99 {row['milliseconds_p99']:.2g}"
        yield at_most("one decision and posterior update, milliseconds", where, None, row["milliseconds"], 5.0)
        yield Measure("state of all tenants, megabytes", where, None, row["megabytes"])
    milliseconds = {row["strategy"]: row["milliseconds"] for row in replays.decisions}
    ratio_of_both = milliseconds["default"] / milliseconds["ours"]
    yield Measure("default / ours, one decision and posterior update", "the same", None, ratio_of_both)
