"""The cells that presets replay: datasets, and how much of them."""

from __future__ import annotations

from easeml_experiments.tenants.protocol import Cell
from easeml_experiments.tenants.replay_cache import LITERAL, RANKED, REAL, SYN

LCDB = "LCDB"  # a matrix of the preset history alone: the others repeat a paper
COST_AWARE = {name: Cell(name) for name in REAL if name != LCDB}
DEEPLEARNING = COST_AWARE["DEEPLEARNING"]
SYN_COSTS = {name: Cell(name, budget=0.5) for name in SYN}
SYN_LITERAL = {name: Cell(name, budget=0.5) for name in LITERAL}
RUNS = {name: Cell(name, is_unit_cost=True) for name in COST_AWARE} | {
    name: Cell(name, is_unit_cost=True, budget=0.5) for name in SYN
}
FIFTY = {name: Cell(name, n_tested=50, budget=0.3) for name in ("179CLASSIFIER", "OBOE", *SYN)}
DEVICES = {"DEEPLEARNING": Cell("DEEPLEARNING"), "179CLASSIFIER": Cell("179CLASSIFIER", budget=0.5)}
N_DEVICES = (1, 2, 4, 8)
PRIOR_SHARES = (0.1, 0.5, 1.0)
ORACLE_LINES = ("oracle_hull", "oracle_bound")
# Where the past is right, and where it misleads. Thirty models, since more take long and misled nobody otherwise.
MISLED = tuple(
    Cell(data, n_models=30, history=history)
    for data, histories in {
        LCDB: ("true", "reversed", "shuffled", "shifted"),
        "179CLASSIFIER": ("true", "reversed", "correlation=-0.5", "correlation=0", "shifted"),
        "OBOE": ("true", "reversed", "shifted"),
        "DEEPLEARNING": ("true", "reversed", "shuffled"),
        RANKED: ("true", "reversed", "correlation=-0.5", "correlation=0"),
    }.items()
    for history in histories
)
