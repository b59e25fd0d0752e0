"""What the trainer 'partial_fit' trains: an estimator that learns from one mini-batch after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from easeml_plpy.server.value_types import Array

BATCH_ROWS = 512


class Estimator(Protocol):
    """The methods that all incremental estimators of scikit-learn have.

    Classifiers also have `predict_proba` or `decision_function`; which of them can depend on their options.
    """

    def partial_fit(self, X: Array, y: Array, **classes: Array) -> object:
        """Learn from one mini-batch; classifiers take `classes`, all that there are."""

    def predict(self, X: Array) -> Array:
        """Return the predicted classes or values."""


@dataclass(frozen=True)
class IncrementalEstimator:
    """An estimator; `transform` makes its input, an array or a sparse matrix, of float32 (n, n_features).

    It learns row by row, so `batch_rows`, how many a call gets, only sets how often training pauses.
    """

    estimator: Estimator
    transform: Callable[[Array], Any] = np.asarray
    batch_rows: int = BATCH_ROWS
