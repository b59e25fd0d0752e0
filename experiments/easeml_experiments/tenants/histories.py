"""What the history says of models, where it is not what today's tenants are like.

true             as it is
reversed         the columns in reverse order: the model that was best in the mean has the qualities of the worst
shuffled         the columns in a random order
shifted          past users were easier: every quality one higher on the logit scale
correlation=x    the columns in an order whose rank correlation with the true one is x
"""

from __future__ import annotations

import numpy as np

from easeml_db.decisions.bandits.prior import to_latent, to_quality
from easeml_db.errors import InvalidArgument
from easeml_experiments.registry import HISTORIES
from easeml_experiments.tenants.matrices import Floats

SHIFT = 1.0
_NEAR = 0.01  # that a correlation may be off
_MOST_SWAPS = 20_000


def told(training: Floats, history: str, rng: np.random.Generator) -> Floats:
    """Return the qualities (m, K) that the history holds of past users. Raises InvalidArgument."""
    if history == "true":
        return training
    if history == "shifted":
        return np.where(training == 0.0, 0.0, to_quality(to_latent(training, "logit") + SHIFT, "logit"))
    if history == "shuffled":
        return training[:, rng.permutation(training.shape[1])]
    return training[:, _permutation(training, correlation_of(history), rng)]


def correlation_of(history: str) -> float:
    """Return the rank correlation that a history is to have. Raises InvalidArgument."""
    name, _, value = history.partition("=")
    try:
        found = -1.0 if history == "reversed" else float(value) if name == "correlation" else np.nan
    except ValueError:
        found = np.nan
    if not -1.0 <= found <= 1.0:
        raise InvalidArgument(f"--history: expected one of {', '.join(HISTORIES)} with x from -1 to 1, got {history!r}")
    return found


def check_history(history: str) -> None:
    """Refuse a history that there is not. Raises InvalidArgument."""
    if history not in HISTORIES[:4]:
        correlation_of(history)


def _permutation(training: Floats, correlation: float, rng: np.random.Generator) -> np.ndarray:
    """Return an order of the columns in which the ranks of their means correlate so with the true ones."""
    known = np.isfinite(training)
    mean = np.where(known, training, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    order = np.argsort(mean, kind="stable")
    if correlation == -1.0:
        reversed_order = np.empty_like(order)
        reversed_order[order] = order[::-1]
        return reversed_order
    ranks = np.argsort(order)
    found = rng.permutation(len(ranks))
    for _ in range(_MOST_SWAPS):
        miss = abs(np.corrcoef(ranks, ranks[found])[0, 1] - correlation)
        if miss < _NEAR:
            break
        a, b = rng.integers(len(ranks), size=2)
        other = found.copy()
        other[a], other[b] = other[b], other[a]
        if abs(np.corrcoef(ranks, ranks[other])[0, 1] - correlation) < miss:
            found = other
    return found
