"""Which inputs a trial relies on: how much worse a metric gets if an input is permuted among held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from easeml_plpy.evaluation.features import Feature, mixed
from easeml_plpy.evaluation.tables import Row
from easeml_plpy.server.value_types import Array

Outputs = Callable[[Sequence[Array]], Array]
"""Fields of rows to what a trial answers for them (n, n_outputs)."""


@dataclass(frozen=True)
class _Mixer:
    """Answers for mixed rows, as an estimator of scikit-learn."""

    outputs: Outputs
    fields: Sequence[Array]
    features: Sequence[Feature]

    def fit(self) -> None:
        """Do nothing: scikit-learn only checks that this method exists."""

    def predict(self, rows: Array) -> Array:
        """Return the outputs of mixed rows."""
        return self.outputs(mixed(self.fields, self.features, rows))


def importance_rows(
    outputs: Outputs,
    rows: tuple[Sequence[Array], Array],
    features: Sequence[Feature],
    score: Callable[[Array, Array], float],
    *,
    n_repeats: int,
    seed: int,
) -> Iterator[Row]:
    """Yield each feature with how much `score(outputs, targets)` falls, the most important first.

    `rows` are fields and targets. The work is permutation_importance of scikit-learn, with that seed.
    """
    from sklearn.inspection import permutation_importance

    fields, targets = rows

    def scored(mixer: _Mixer, matrix: Array, truth: Array) -> float:
        return score(mixer.predict(matrix), truth)

    matrix = np.tile(np.arange(len(targets))[:, None], (1, len(features)))
    importances: Any = permutation_importance(
        _Mixer(outputs, fields, features), matrix, targets, scoring=scored, n_repeats=n_repeats, random_state=seed
    )
    for k in np.argsort(-importances.importances_mean, kind="stable").tolist():
        yield {
            "input": features[k].name,
            "importance": float(importances.importances_mean[k]),
            "standard_deviation": float(importances.importances_std[k]),
        }
