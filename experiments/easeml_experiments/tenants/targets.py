"""The table of all targets."""

from __future__ import annotations

from collections.abc import Iterator

from easeml_experiments.contract import Measure
from easeml_experiments.tenants.baselines import against_spearmint, fixed_orders
from easeml_experiments.tenants.cells import COST_AWARE, DEEPLEARNING
from easeml_experiments.tenants.findings import decisions, regret_slopes
from easeml_experiments.tenants.judging import cost_ratio
from easeml_experiments.tenants.lab import Lab
from easeml_experiments.tenants.oracle import ORACLES


def targets(lab: Lab) -> Iterator[Measure]:
    """Every measure that has a target, and what is reported beside them."""
    yield from fixed_orders(lab)
    yield from against_spearmint(lab)
    for data, most in (("DEEPLEARNING", 0.65), ("OBOE", 0.5), ("179CLASSIFIER", 0.75)):
        if lab.has(data):
            yield cost_ratio(lab, COST_AWARE[data], ("ours", "hybrid"), 0.01, most)
    if lab.has("DEEPLEARNING"):
        yield cost_ratio(lab, DEEPLEARNING, ("ours", "oracle_hull"), 0.02, 2.2)
        yield cost_ratio(lab, DEEPLEARNING, ("hybrid", "oracle_hull"), 0.02, None)
        seconds = lab[DEEPLEARNING].seconds
        where = f"DEEPLEARNING, {len(lab[DEEPLEARNING].runs) - len(ORACLES)} strategies, {lab.n_repeats} repeats"
        yield Measure("all strategies, seconds", where, None, seconds)
    yield from regret_slopes(lab)
    yield from decisions(lab)
