"""The table of all targets."""

from __future__ import annotations

from collections.abc import Iterator

from easeml_experiments.contract import Measure
from easeml_experiments.tenants.baselines import against_spearmint, fixed_orders
from easeml_experiments.tenants.cells import COST_AWARE, DEEPLEARNING
from easeml_experiments.tenants.findings import decisions, regret_slopes
from easeml_experiments.tenants.judging import cost_ratio
from easeml_experiments.tenants.oracle import ORACLES
from easeml_experiments.tenants.replay_cache import ReplayCache


def targets(replays: ReplayCache) -> Iterator[Measure]:
    """Return every measure that has a target, and what is reported beside them."""
    yield from fixed_orders(replays)
    yield from against_spearmint(replays)
    for data, most in (("DEEPLEARNING", 0.65), ("OBOE", 0.5), ("179CLASSIFIER", 0.75)):
        if replays.has(data):
            yield cost_ratio(replays, COST_AWARE[data], ("ours", "hybrid"), 0.01, most)
    if replays.has("DEEPLEARNING"):
        yield cost_ratio(replays, DEEPLEARNING, ("ours", "oracle_hull"), 0.02, 2.2)
        yield cost_ratio(replays, DEEPLEARNING, ("hybrid", "oracle_hull"), 0.02, None)
        seconds = replays[DEEPLEARNING].seconds
        where = (
            f"DEEPLEARNING, {len(replays[DEEPLEARNING].runs) - len(ORACLES)} strategies, {replays.n_repeats} repeats"
        )
        yield Measure("all strategies, seconds", where, None, seconds)
    yield from regret_slopes(replays)
    yield from decisions(replays)
