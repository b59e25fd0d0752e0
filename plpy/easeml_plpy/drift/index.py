"""The population stability index: how far apart two distributions of rows over the same bins are.

symbol   meaning
e, a     shares of the training rows and of the new rows in a bin, at least LEAST_SHARE each
PSI      sum over bins of (a - e) ln(a / e)
chance   (bins - 1) (1 / n + 1 / m), what PSI comes to on average where n and m rows are drawn from one population
         (Yurdakul and Naranjo, 2020)
"""

from __future__ import annotations

import numpy as np

from easeml_plpy.server.value_types import Array

LEAST_SHARE = 1e-4
MODERATE, LARGE = 0.1, 0.25
"""Beyond chance; the usual limits."""


def stability_index(trained: Array, new: Array) -> float:
    """Return the PSI of counts by bin; 0 if there are no rows."""
    if not trained.sum() or not new.sum():
        return 0.0
    expected = np.maximum(trained / trained.sum(), LEAST_SHARE)
    actual = np.maximum(new / new.sum(), LEAST_SHARE)
    return float(((actual - expected) * np.log(actual / expected)).sum())


def chance_index(trained: Array, new: Array) -> float:
    """Return the PSI to expect by chance alone, over the bins that hold any row."""
    n_bins = int(((trained > 0) | (new > 0)).sum())
    if not trained.sum() or not new.sum():
        return 0.0
    return float((n_bins - 1) * (1 / trained.sum() + 1 / new.sum()))


def level(excess: float) -> str:
    """Return the word for the size of an index beyond chance."""
    return "large" if excess >= LARGE else "moderate" if excess >= MODERATE else "none"
