"""Qualities of past tenants as a full matrix: priors need one, real histories have gaps."""

from __future__ import annotations

import numpy as np

from easeml_db.bandits.prior import Matrix
from easeml_db.errors import InvalidArgument


def filled(qualities: Matrix, *, zero_is_failure: bool = True) -> Matrix:
    """Past qualities (n, K), nan where an arm was not offered, with every gap filled by row effect + column effect.

    A zero marks a failed run, which tells nothing of the arm's quality. An arm that nobody tried gets its row's mean.
    Raises InvalidArgument for a row without any quality.
    """
    known = np.isfinite(qualities) & ~(zero_is_failure & (qualities == 0.0))
    if not known.any(axis=1).all():
        raise InvalidArgument("history: expected at least one quality of each past tenant, got a row without any")
    if known.all():
        return qualities
    rows, columns = _effects(np.where(known, qualities, 0.0), known)
    return np.where(known, qualities, rows[:, None] + columns[None, :])


def _effects(values: Matrix, known: np.ndarray, n_rounds: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Least squares fit of value = row + column over the known cells, by alternating means."""
    columns = np.zeros(values.shape[1])
    n_in_row, n_in_column = known.sum(axis=1), np.maximum(known.sum(axis=0), 1)
    rows = np.zeros(values.shape[0])
    for _ in range(n_rounds):
        rows = ((values - columns) * known).sum(axis=1) / n_in_row
        columns = ((values - rows[:, None]) * known).sum(axis=0) / n_in_column
    return rows, columns
