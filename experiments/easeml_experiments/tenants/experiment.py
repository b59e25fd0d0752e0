"""Runs the presets, or the strategies that a user names on matrices of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from easeml_db.errors import InvalidArgument
from easeml_experiments.contract import Measure, Options, Result
from easeml_experiments.tenants.curves import Curves
from easeml_experiments.tenants.free_use import free_use
from easeml_experiments.tenants.judging import costs, missing
from easeml_experiments.tenants.plots import Drawn, cost_rows, curve_rows, loss_chart, regret_chart, regret_rows
from easeml_experiments.tenants.presets import PRESETS, Line, Preset
from easeml_experiments.tenants.protocol import N_TESTED, Cell
from easeml_experiments.tenants.replay_cache import REAL, ReplayCache
from easeml_experiments.tenants.workers import workers

QUICK_PRESETS = ("V9", "15", "devices", "history", "regret", "decision", "targets")
WHY = (
    "DEEPLEARNING is a reconstruction from a prototype of the authors: its columns are inferred, nine pairings of"
    " quality and cost rest on file order, and its costs look derived. AZUREMLBENCH was never published. 179CLASSIFIER"
    " has no costs; they are drawn, as in the paper, but by another seed. The paper prints neither the orders of"
    " MOSTCITED and MOSTRECENT nor delta, neither the hyperparameters of its prior nor Spearmint*'s, nor how costs are"
    " scaled (here by their mean). OBOE is not in the paper. `ours` (expected improvement per cost over all tenants,"
    " prior empirical_logit) is the same on all data; `hybrid` with GP-UCB and the RBF prior is the paper's. An arm is"
    " played once, except for the theorems' regret. SYN is scaled by 0.1, and losses with it, so that a small alpha"
    " makes a loss easy to reach; the literal formula clips most cells at alpha = 1. Repeats, and so intervals, share"
    " users: they say how sure a figure is for these matrices, not for others."
)


def run(options: Options) -> Result:
    """Run presets or free use. Raises InvalidArgument, InvalidData."""
    if options.values.get("quality") is not None:
        return free_use(options)
    presets = _chosen(options.values.get("preset", "all"), options.is_quick)
    data = options.values.get("data")
    if isinstance(data, Path) and not data.is_dir():
        raise InvalidArgument(f"--data: expected a folder with {', '.join(file for file, _ in REAL.values())}")
    with workers(in_process=options.is_quick) as pool:
        replays = ReplayCache(options, data, pool)
        replays.replay(_needs(presets))
        return _result(replays, presets)


def _chosen(names: str, is_quick: bool) -> list[Preset]:
    everything = QUICK_PRESETS if is_quick else tuple(PRESETS)
    wanted = everything if names == "all" else [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in PRESETS:
            raise InvalidArgument(
                f"--preset: there is no preset {name!r}", hint=f"Choose among: all, {', '.join(PRESETS)}."
            )
    return [PRESETS[name] for name in wanted]


def _needs(presets: Sequence[Preset]) -> dict[Cell, list[str]]:
    """Return what any of them needs, each once."""
    found: dict[Cell, dict[str, None]] = {}
    for preset in presets:
        for cell, names in preset.needs().items():
            found.setdefault(cell, {}).update(dict.fromkeys(names))
    return {cell: [name for name in names if not name.startswith("oracle")] for cell, names in found.items()}


def _result(replays: ReplayCache, presets: Sequence[Preset]) -> Result:
    tables: dict[str, Any] = {}
    plots: dict[str, Any] = {}
    measures: dict[Measure, None] = {}
    for preset in presets:
        replays.options.say(f"preset {preset.name}: {preset.title}")
        measures.update(dict.fromkeys(_measures(replays, preset)))
        if preset.name == "regret":
            tables["regret"] = regret_rows(replays)
            plots["regret"] = regret_chart(tables["regret"])
        elif preset.name == "decision":
            tables["decision"] = replays.decisions
        elif drawn := _drawn(replays, preset):
            tables[f"{preset.name}_curves"] = curve_rows(drawn)
            tables[f"{preset.name}_costs"] = cost_rows(drawn, replays.draws)
            plots[preset.name] = _chart(drawn, preset)
    return Result(tuple(measures), WHY, tables, plots)


def _drawn(replays: ReplayCache, preset: Preset) -> list[Drawn]:
    """Return the lines of a preset, where there are matrices."""
    return [
        Drawn(panel, line.label, curves := _curves(replays, preset, line), min(preset.shown, curves.budget))
        for panel, lines in preset.panels.items()
        for line in lines
        if replays.has(line.cell.data)
    ]


def _curves(replays: ReplayCache, preset: Preset, line: Line) -> Curves:
    replayed = replays[line.cell]
    return replayed.shortfalls(line.strategy) if preset.is_share else replayed.losses(line.strategy)


def _chart(drawn: Sequence[Drawn], preset: Preset) -> Any:
    x_title = "% of all runs" if all(cell.is_unit_cost for cell in preset.needs()) else "% of all cost"
    x_title = "% of one device's time" if preset.name == "devices" else x_title
    what = "missing from the best possible" if preset.is_share else "accuracy loss"
    return loss_chart(drawn, what=what, x_title=x_title)


def _measures(replays: ReplayCache, preset: Preset) -> Iterator[Measure]:
    """Yield a preset's own, then the cost of every line to three losses, then what is missing."""
    yield from preset.measures(replays)
    for panel, lines in preset.panels.items():
        for line in lines if not preset.is_share else ():
            if replays.has(line.cell.data):
                yield costs(replays[line.cell].losses(line.strategy), line.label, _where(panel, line.cell))
    for data in dict.fromkeys(cell.data for cell in preset.needs()):
        if not replays.has(data):
            yield missing(data)


def _where(panel: str, cell: Cell) -> str:
    return f"{panel}{f', {cell.n_tested} tenants' * (cell.n_tested != N_TESTED)}{', all costs 1' * cell.is_unit_cost}"
