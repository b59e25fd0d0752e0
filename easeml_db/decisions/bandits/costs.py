"""Costs of arms: what decisions divide by.

The cost-aware rule depends on the scale of costs, and the paper does not give one: costs are in units of the mean
over all known (tenant, arm) cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from easeml_db.decisions.bandits.prior import Vector
from easeml_db.errors import InvalidArgument


def normalised(costs: Sequence[Vector]) -> list[Vector]:
    """Return all tenants' costs, one vector each (K_i,), in units of their common mean. Raises InvalidArgument."""
    everything = np.concatenate(costs) if costs else np.empty(0)
    check_costs(everything)
    # One mean over all tenants, not one for each: algorithm 2, line 8, compares bounds of different tenants.
    mean = float(everything.mean()) if len(everything) else 1.0
    return [one / mean for one in costs]


def check_costs(costs: np.ndarray) -> None:
    """Refuse a cost that is not a positive number."""
    if not (np.isfinite(costs) & (costs > 0)).all():
        wrong = costs[~(np.isfinite(costs) & (costs > 0))][0]
        raise InvalidArgument(f"costs: expected positive numbers, got {wrong}")
