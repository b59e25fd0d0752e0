"""Knots of numbers: quantiles of a sample of the training rows, with the minimum and maximum of all training rows at
the ends.

The sample is every n-th training row in the order of the blocks. That order is one of hashes, so the sample is fair,
and the same rows give the same knots. Wide tables have fewer knots per number, so that the encoder stays small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from easeml_plpy.columns.encoder import Field, Moment, NumericField, TensorField
from easeml_plpy.server.value_types import Array

MOST_KNOTS, LEAST_KNOTS = 128, 4
ALL_KNOTS = 1 << 16
LEAST_DISTINCT = 50
MOST_ROWS, LEAST_ROWS = 100_000, 1_000
ALL_NUMBERS = 1 << 22
"""Sampled numbers of all inputs together, which bounds what sorting them costs."""


def n_positions(field: Field) -> int:
    """Return how many sequences of knots a field has: one for each position of a vector, else one for all numbers."""
    if isinstance(field, TensorField) and len(field.shape) == 1:
        return math.prod(field.shape)
    return int(isinstance(field, NumericField | TensorField))


class KnotSample:
    """Sampled rows of one field, and the range of all of its rows."""

    def __init__(self, field: Field, n_rows: int, n_numbers: int, *, is_alone: bool = False) -> None:
        """`n_rows`: all rows to come; `n_numbers`: positions of all inputs; `is_alone`: there is no other input."""
        self._n_positions = n_positions(field)
        self._n_knots = int(np.clip(ALL_KNOTS // n_numbers, LEAST_KNOTS, MOST_KNOTS))
        most = int(np.clip(ALL_NUMBERS // n_numbers, LEAST_ROWS, MOST_ROWS))
        # The row form `table`, which places numbers among knots, excludes an array alone: its range is enough.
        self._step = None if is_alone and isinstance(field, TensorField) else max(1, -(-n_rows // most))
        # Where all numbers of a row have the same knots, some of them are enough.
        shared = 1 if self._n_positions > 1 else math.prod(field.shape)
        self._inner_step = max(1, shared * min(most, n_rows) // (ALL_NUMBERS // 4))
        self._parts: list[Array] = []
        self._low = np.full(self._n_positions, np.nan)
        self._high = np.full(self._n_positions, np.nan)

    def look(self, values: Array, n_before: int) -> tuple[Array, Array, Array | None]:
        """Return the minima and maxima of training rows (n, ...), and the numbers of the sample; NaN counts as missing.
        `n_before`: training rows before these.
        """
        rows = values.reshape(len(values), -1) if self._n_positions > 1 else values.reshape(-1, 1)
        # Whole numbers know no NaN, and numpy is quicker over them without looking for it.
        least, most = (np.fmin, np.fmax) if rows.dtype.kind == "f" else (np.minimum, np.maximum)
        sampled = None if self._step is None else self._sampled(values, n_before, self._step)
        return least.reduce(rows, axis=0), most.reduce(rows, axis=0), sampled

    def add(self, low: Array, high: Array, sampled: Array | None) -> None:
        """Add what `look` returned, in the order of the rows."""
        self._low, self._high = np.fmin(self._low, low), np.fmax(self._high, high)
        if sampled is not None:
            self._parts.append(sampled)

    def _sampled(self, values: Array, n_before: int, step: int) -> Array:
        chosen = values[-n_before % step :: step].reshape(-1, *values.shape[1:])
        flat = chosen.reshape(len(chosen), -1)[:, :: self._inner_step]
        return flat.reshape(-1, self._n_positions).astype(np.float64)

    def values(self) -> Array:
        """Return the sampled numbers, float64 (n, positions)."""
        return np.concatenate(self._parts) if self._parts else np.empty((0, self._n_positions))

    def is_distinct(self) -> bool:
        """Return whether no number of the sample comes twice, and none is missing."""
        values = self.values()
        return len(values) >= LEAST_DISTINCT and len(np.unique(values)) == len(values) and not np.isnan(values).any()

    def knots(self) -> tuple[Moment, ...]:
        """Return the knots of each position, ascending; none if all rows are missing."""
        ordered = np.sort(np.ascontiguousarray(self.values().T), axis=1)  # NaN comes last
        n_known = np.count_nonzero(~np.isnan(ordered), axis=1)
        columns = zip(ordered, n_known, self._low, self._high, strict=True)
        return tuple(_knots(column[:n], [low, high], self._n_knots) for column, n, low, high in columns)


def _knots(ordered: Array, ends: Sequence[float], n_knots: int) -> Moment:
    """Return quantiles of sorted numbers, or all distinct ones if they are few, with the two ends."""
    distinct = ordered[np.flatnonzero(np.diff(ordered, prepend=np.nan) != 0)]
    if len(distinct) > n_knots:
        distinct = ordered[np.linspace(0, len(ordered) - 1, n_knots).round().astype(np.int64)]
    knots: Moment = np.unique([end for end in [*distinct, *ends] if not np.isnan(end)])
    return knots
