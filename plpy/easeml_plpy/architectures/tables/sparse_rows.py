"""Rows of the row form `sparse` as sparse matrices, for scikit-learn estimators that accept them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from easeml_plpy.architectures.tables.incremental import Estimator, IncrementalEstimator
from easeml_plpy.columns.layout import FormColumn, Layout
from easeml_plpy.columns.task import Task
from easeml_plpy.server.value_types import Array

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SPARSE_BATCH_ROWS = 4096


@dataclass(frozen=True)
class _Group:
    """Columns of one input and kind: where they are in the row form, and where in the matrix their places begin."""

    kind: str
    columns: slice
    first: int


class SparseRows:
    """Makes (n, n_features) of rows in a row form with this layout: numbers and flags as they are, codes and tokens as
    places of their own."""

    def __init__(self, layout: Layout) -> None:
        self._groups: list[_Group] = []
        start = self.n_features = 0
        for (kind, _), members in groupby(layout, key=lambda column: (column.kind, column.field)):
            columns = list(members)
            self._groups.append(_Group(kind, slice(start, start + len(columns)), self.n_features))
            start += len(columns)
            self.n_features += _n_places(kind, columns)

    def __call__(self, rows: Array) -> csr_array:
        """Return the matrix of a batch (n, columns of the row form)."""

        places, values = [], []
        for group, following in zip(self._groups, [*self._groups[1:], None], strict=True):
            if group.kind == "weight":
                continue
            part = rows[:, group.columns]
            if group.kind in ("category", "token"):
                places.append(np.where(part < 0, 0, part).astype(np.int32) + group.first)
                is_weighted = group.kind == "token" and following is not None and following.kind == "weight"
                weights = rows[:, following.columns] if is_weighted and following is not None else part >= 0
                values.append(weights)
            else:
                places.append(np.broadcast_to(group.first + np.arange(part.shape[1]), part.shape))
                values.append(part)
        return _matrix(np.concatenate(places, axis=1), np.concatenate(values, axis=1), self.n_features)


def _n_places(kind: str, columns: list[FormColumn]) -> int:
    """Return how many columns of the matrix a group takes; tokens of a text share theirs."""
    if kind == "weight":
        return 0
    if kind == "token":
        return max(columns[0].cardinality, 1)
    return sum(column.cardinality for column in columns) if kind == "category" else len(columns)


def _matrix(places: Array, values: Array, n_features: int) -> csr_array:
    """Return the sparse matrix with these values at these places (n, k), without its zeros."""
    from scipy.sparse import csr_array

    is_kept = values != 0
    ends = np.concatenate([[0], np.cumsum(is_kept.sum(axis=1))]).astype(np.int32)
    return csr_array(
        (values[is_kept].astype(np.float64), places[is_kept].astype(np.int32), ends), shape=(len(values), n_features)
    )


def incremental(task: Task, estimator: Estimator) -> IncrementalEstimator:
    """Return an estimator with the function that makes its input from rows: a sparse matrix if the row form has a
    layout, else the rows.

    It takes more sparse rows at once: each call goes over all weights of each class once, which for 100,000 weights
    costs as much as learning from thousands of rows.
    """
    if not task.layout:
        return IncrementalEstimator(estimator)
    return IncrementalEstimator(estimator, SparseRows(task.layout), batch_rows=SPARSE_BATCH_ROWS)
