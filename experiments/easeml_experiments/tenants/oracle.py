"""What those reach who know all qualities and costs; curves start at cost 0, costs are shares of the sum of all.

hull    per tenant the concave hull of (cost, quality) from (0, 0); its edges, over all tenants, by falling slope. Every
        point is one model a tenant, so it is what a clairvoyant can do with exactly that cost
bound   the same points joined by straight lines: the optimum of the relaxed choice, which nothing can go below
gain    plays, pays for and keeps what has the largest gain per cost next; weaker than hull, as nothing is taken back
"""

from __future__ import annotations

import numpy as np

from easeml_experiments.tenants.matrices import Floats

Curve = tuple[Floats, Floats]  # cost (t,), loss (t,)
ORACLES = ("oracle_hull", "oracle_bound", "oracle_gain")


def oracles(quality: Floats, cost: Floats) -> dict[str, Curve]:
    """Return the three curves by name; `quality` and `cost` are (n, K), nan where a model is not offered."""
    hull = hull_oracle(quality, cost)
    return dict(zip(ORACLES, (hull, hull, gain_oracle(quality, cost)), strict=True))


def hull_oracle(quality: Floats, cost: Floats) -> Curve:
    """Return points of the hull oracle: steps of what can be done, joined by lines the strict bound."""
    edges = [edge for q, c in zip(quality, cost, strict=True) for edge in _edges(q, c)]
    edges.sort(key=lambda edge: -edge[1] / edge[0])  # stable, and slopes of a tenant fall: its order is kept
    costs, gains = np.array([(0.0, 0.0), *edges]).T
    return np.cumsum(costs) / np.nansum(cost), _loss(quality, gains)


def _edges(quality: Floats, cost: Floats) -> list[tuple[float, float]]:
    """Return (cost, gain) of the edges of one tenant's hull, slopes falling."""
    edges: list[tuple[float, float]] = []
    at_cost = at_quality = 0.0
    while (better := np.flatnonzero((quality > at_quality) & (cost > at_cost))).size:
        slopes = (quality[better] - at_quality) / (cost[better] - at_cost)
        arm = int(better[np.argmax(slopes)])
        edges.append((float(cost[arm]) - at_cost, float(quality[arm]) - at_quality))
        at_cost, at_quality = float(cost[arm]), float(quality[arm])
    return edges


def gain_oracle(quality: Floats, cost: Floats) -> Curve:
    """Play after play the largest gain per cost, paid in full."""
    best = np.zeros(len(quality))
    costs, gains = [0.0], [0.0]
    while True:
        rates = np.nan_to_num((quality - best[:, None]) / cost, nan=-np.inf)
        tenant, arm = np.unravel_index(int(np.argmax(rates)), rates.shape)
        if not rates[tenant, arm] > 0:
            break
        costs.append(float(cost[tenant, arm]))
        gains.append(float(quality[tenant, arm] - best[tenant]))
        best[tenant] = quality[tenant, arm]
    return np.cumsum(costs) / np.nansum(cost), _loss(quality, np.array(gains))


def _loss(quality: Floats, gains: Floats) -> Floats:
    loss: Floats = np.maximum(np.nanmax(quality, axis=1).mean() - np.cumsum(gains) / len(quality), 0.0)
    return loss
