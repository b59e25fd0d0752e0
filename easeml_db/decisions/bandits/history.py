"""Qualities of past tenants as a full matrix: priors need one, but real histories have gaps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from easeml_db.decisions.bandits.prior import Matrix
from easeml_db.errors import InvalidArgument


def filled(qualities: Matrix) -> Matrix:
    """Return past qualities (n, K), nan where an arm was not offered, every gap filled by row effect + column effect.

    An arm that no tenant tried gets the row effect alone. Raises InvalidArgument for a row without any quality.
    """
    mask = is_known(qualities)
    if not mask.any(axis=1).all():
        raise InvalidArgument("history: expected at least one quality of each past tenant, got a row without any")
    if mask.all():
        return qualities
    rows, columns = _effects(np.where(mask, qualities, 0.0), mask)
    return np.where(mask, qualities, rows[:, None] + columns[None, :])


def is_known(qualities: Matrix) -> NDArray[np.bool_]:
    """Mark the cells with a known quality of an arm: neither a gap nor a zero, which marks a failed run."""
    mask: NDArray[np.bool_] = np.isfinite(qualities) & (qualities != 0.0)
    return mask


def _effects(values: Matrix, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit value = row + column to the known cells by least squares; of all such fits, take that of the least columns.

    With the rows eliminated, the columns c solve (N - M' R^-1 M) c = column sums - M' R^-1 row sums, where M (n, K)
    is the mask of known cells, and R and N hold its row and column counts on their diagonals.
    """
    per_row = mask / mask.sum(axis=1, keepdims=True)
    row_means = values.sum(axis=1) / mask.sum(axis=1)
    system = np.diag(mask.sum(axis=0)) - mask.T @ per_row
    # Singular: adding a constant to all columns and taking it from all rows changes nothing. lstsq returns the smallest
    # solution, which is also 0 for an arm that nobody tried.
    columns = np.linalg.lstsq(system, values.sum(axis=0) - mask.T @ row_means, rcond=1e-10)[0]
    return row_means - per_row @ columns, columns
