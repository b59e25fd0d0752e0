"""Measures against other strategies: fixed orders (figure 9), Spearmint* (figures 9 and 10 of the VLDB version)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from easeml_experiments.contract import Measure
from easeml_experiments.tenants.cells import COST_AWARE, DEEPLEARNING
from easeml_experiments.tenants.curves import ratio, time_ratio
from easeml_experiments.tenants.judging import at_all_losses, frozen, interval, judged, present, title_of
from easeml_experiments.tenants.replay_cache import ReplayCache
from easeml_experiments.tenants.strategies import SHUFFLED

BETWEEN = (0.1, 0.02)


def fixed_orders(replays: ReplayCache) -> Iterator[Measure]:
    """Measure the time from loss 0.1 to 0.02, of a fixed order relative to ours."""
    if not replays.has("DEEPLEARNING"):
        return
    bounds = {("mostcited", "hybrid"): 12.0, ("mostcited", "ours"): 20.0}
    for order in ("mostcited", "mostrecent"):
        for name in ("hybrid", "ours"):
            yield _order_measure(replays, order, name, bounds.get((order, name)))
    for name in ("hybrid", "ours"):
        yield _shuffled(replays, name)
    yield _worst_order(replays, "hybrid", None)
    yield _worst_order(replays, "ours", 3.1)
    yield frozen(replays, DEEPLEARNING)


def _order_measure(replays: ReplayCache, order: str, name: str, bound: float | None) -> Measure:
    found = time_ratio(replays[DEEPLEARNING].losses(order), replays[DEEPLEARNING].losses(name), BETWEEN, replays.draws)
    title, where = f"{order.upper()} / {name}, time from loss 0.1 to 0.02", f"DEEPLEARNING, mean; {interval(found)}"
    return judged(title, where, 9.8 if order == "mostcited" else None, found.value, bound)


def _worst_order(replays: ReplayCache, name: str, bound: float | None) -> Measure:
    above, below = (replays[DEEPLEARNING].losses(each) for each in ("mostcited", name))
    found = time_ratio(above, below, BETWEEN, replays.draws, worst=True)
    where = f"DEEPLEARNING, worst repeat; {interval(found)}"
    return judged(f"MOSTCITED / {name}, time from loss 0.1 to 0.02", where, "up to 3.1", found.value, bound)


def _shuffled(replays: ReplayCache, name: str) -> Measure:
    """Measure the same relative to orders drawn at random, as the paper does not print its own."""
    ours = replays[DEEPLEARNING].losses(name)
    found = [
        time_ratio(replays[DEEPLEARNING].losses(order), ours, BETWEEN, replays.draws[:1]).value for order in SHUFFLED
    ]
    text = f"{np.median(found):.3g} (least {min(found):.3g}, greatest {max(found):.3g})"
    where = f"DEEPLEARNING, mean; median of {len(found)} orders"
    return Measure(f"random order / {name}, time from loss 0.1 to 0.02", where, None, text)


def against_spearmint(replays: ReplayCache) -> Iterator[Measure]:
    """Measure Spearmint* relative to ours at every loss, with its own prior and with our best."""
    paper = {"DEEPLEARNING": "up to 3.2"}
    for cell in present(replays, COST_AWARE.values()):
        most = None if cell.data == "179CLASSIFIER" else 2.0
        yield from at_all_losses(replays, cell, "spearmint", "ours", paper.get(cell.data), most=most, least=1.0)
        yield from at_all_losses(replays, cell, "spearmint", "hybrid", paper.get(cell.data))
        yield from at_all_losses(replays, cell, "spearmint_best_prior", "ours", None)
        yield from at_all_losses(replays, cell, "spearmint_best_prior", "hybrid_best_prior", None)
    yield Measure(
        "Spearmint* / ours, greatest ratio at losses 0.2 to 0.005", "AZUREMLBENCH", "up to 4.1", "unavailable"
    )


def best_share(replays: ReplayCache) -> Iterator[Measure]:
    """Measure how much sooner 95 % of the best possible is reached."""
    for cell in present(replays, COST_AWARE.values()):
        others = ("spearmint", "mostcited", "mostrecent") if cell == DEEPLEARNING else ("spearmint",)
        for above in others:
            for below in ("hybrid", "ours"):
                found = ratio(replays[cell].shortfalls(above), replays[cell].shortfalls(below), 0.05, replays.draws)
                paper = "2.3" if cell == DEEPLEARNING and above == "spearmint" else None
                where = f"{cell.data}; {interval(found)}"
                yield judged(
                    f"{title_of(above)} / {below}, cost to 95 % of the best possible", where, paper, found.value, None
                )
    yield Measure("Spearmint* / ours, cost to 95 % of the best possible", "AZUREMLBENCH", "3", "unavailable")
