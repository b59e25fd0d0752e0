"""The figures as presets: which lines they draw, of which strategies on which data, and which measures they yield.

Presets without lines (regret, decision, targets) have measures and tables of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from easeml_experiments.contract import Measure
from easeml_experiments.tenants import baselines, findings, misled, targets
from easeml_experiments.tenants.cells import (
    COST_AWARE,
    DEEPLEARNING,
    DEVICES,
    FIFTY,
    MISLED,
    N_DEVICES,
    ORACLE_LINES,
    PRIOR_SHARES,
    RUNS,
    SYN_COSTS,
    SYN_LITERAL,
)  # fmt: skip
from easeml_experiments.tenants.protocol import Cell
from easeml_experiments.tenants.replay_cache import ReplayCache
from easeml_experiments.tenants.strategies import NAMES, SHUFFLED

Measures = Callable[[ReplayCache], Iterator[Measure]]


@dataclass(frozen=True)
class Line:
    """A strategy (or oracle) on a cell; `label` is what the plot calls it."""

    label: str
    cell: Cell
    strategy: str


@dataclass(frozen=True)
class Preset:
    """`lines` by panel; `extra` is replayed for the measures alone; `shown` the largest share of cost that is drawn;
    `is_share` draws what is missing from the best possible instead of the loss."""

    name: str
    title: str
    measures: Measures
    panels: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    shown: float = 0.1
    extra: tuple[Line, ...] = ()
    is_share: bool = False

    def needs(self) -> dict[Cell, list[str]]:
        """Return what must be replayed."""
        found: dict[Cell, list[str]] = {}
        for line in (*(line for lines in self.panels.values() for line in lines), *self.extra):
            found.setdefault(line.cell, []).append(line.strategy)
        return found


def _panel(cell: Cell, *names: str) -> dict[str, Sequence[Line]]:
    return {cell.data: [Line(name, cell, name) for name in names]}


def _panels(cells: Mapping[str, Cell], *names: str) -> dict[str, Sequence[Line]]:
    return {data: lines for cell in cells.values() for data, lines in _panel(cell, *names).items()}


def _with_share(share: float) -> str:
    return f"{share:.0%}"


def _figure_14() -> dict[str, Sequence[Line]]:
    return {
        f"{data}, {name}": [Line(_with_share(share), replace(COST_AWARE[data], train_share=share), name)
                            for share in PRIOR_SHARES]
        for data in ("DEEPLEARNING", "179CLASSIFIER") for name in ("hybrid", "ours")
    }  # fmt: skip


def _devices() -> dict[str, Sequence[Line]]:
    return {
        f"{data}, {name}": [Line(f"{n} device{'s' * (n > 1)}", replace(cell, n_devices=n), name) for n in N_DEVICES]
        for data, cell in DEVICES.items() for name in ("hybrid", "ours")
    }  # fmt: skip


CLASSIFIERS = RUNS["179CLASSIFIER"]
# Which is ours by another name; and what a new server does is no baseline of the paper's.
ALL_DEEPLEARNING = tuple(name for name in NAMES if name not in ("ei_rate", "default", "default_in_turns"))
SPEARMINT = ("ours", "hybrid", "spearmint", "hybrid_best_prior", "spearmint_best_prior")
SHARED = ("ours", "hybrid", "round_robin", "random")
ORDERS = tuple(Line(name, DEEPLEARNING, name) for name in SHUFFLED)
AGAINST_DEFAULT = ("default", "ours", "hybrid_best_prior", "default_in_turns")
MISLED_PANELS = {misled.named(cell): [Line(name, cell, name) for name in AGAINST_DEFAULT] for cell in MISLED}
SYN_PANELS = _panels(SYN_COSTS, "ours", "hybrid") | _panels(SYN_LITERAL, "ours", "hybrid")

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        each.name: each
        for each in (
            Preset(
                "9", "against fixed orders", baselines.fixed_orders,
                _panel(DEEPLEARNING, "ours", "hybrid", "mostcited", "mostrecent", *ORACLE_LINES), 1.0, ORDERS,
            ),
            Preset(
                "V9", "against Spearmint*", baselines.against_spearmint,
                _panels(COST_AWARE, *SPEARMINT, "oracle_hull"),
            ),
            Preset(
                "V10", "share of the best possible", baselines.best_share,
                _panels(COST_AWARE, "ours", "hybrid", "spearmint") | _panel(
                    DEEPLEARNING, "ours", "hybrid", "spearmint", "mostcited", "mostrecent"), 1.0, is_share=True,
            ),
            Preset("10", "all costs 1", findings.without_costs, _panels(RUNS, *SHARED), 0.5),
            Preset("11", "with costs", findings.with_costs, _panels({**COST_AWARE, **SYN_COSTS}, *SHARED)),
            Preset("12", "correlation of models", findings.correlation, SYN_PANELS),
            Preset(
                "13", "decided with and without costs", findings.lesion,
                _panel(DEEPLEARNING, "ours", "ours_without_cost", "hybrid", "hybrid_without_cost"), 1.0,
            ),
            Preset("14", "priors from fewer users", findings.fewer_users, _figure_14(), 0.3),
            Preset(
                "15", "greedy and hybrid", findings.greedy_and_hybrid,
                _panel(CLASSIFIERS, "greedy", "hybrid", "round_robin"), 1.0,
            ),
            Preset(
                "fifty", "50 tenants", findings.fifty,
                _panels(FIFTY, "ours", "hybrid", "spearmint", "round_robin"), 0.2,
            ),
            Preset("devices", "several devices", findings.devices, _devices(), 0.3),
            Preset("history", "a history that is right, and others that mislead", misled.misled, MISLED_PANELS, 1.0),
            Preset("regret", "the theorems' regret", findings.regret_slopes),
            Preset("decision", "what a decision costs", findings.decisions),
            Preset(
                "targets", "all targets", targets.targets,
                extra=tuple(Line(name, cell, name) for cell in COST_AWARE.values()
                            for name in (*SPEARMINT, *(ALL_DEEPLEARNING if cell == DEEPLEARNING else ())))
                + ORDERS,
            ),
        )
    }
)  # fmt: skip
