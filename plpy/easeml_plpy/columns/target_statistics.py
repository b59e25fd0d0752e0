"""Statistics of the target in each category of the training rows, computed out of fold (Micci-Barreca 2001).

A training row must not see its own target in its inputs. So counts and sums are kept by fold, a row of a partition
belongs to one of five in turn, and a training row gets the statistics of the other four. All other rows get those of
all five. The mean of a category is pulled towards the mean of all rows, as if the category had some further rows with
that mean.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from easeml_plpy.server.value_types import JSON, Array

MANY = 64
"""Categories beyond which a column has target statistics: row forms can tell fewer apart by themselves."""
MOST_OUTPUTS = 8
N_FOLDS = 5
PRIOR_ROWS = 10.0
"""Rows of mean target that each category has besides its own."""


@dataclass(frozen=True)
class Outputs:
    """The values behind the statistics: the number to predict, or for each class whether it is that one (for two
    classes, the second).
    """

    n_outputs: int
    is_label: bool

    def of(self, targets: Array) -> npt.NDArray[np.float64]:
        """Return the outputs of rows (n, n_outputs)."""
        if not self.is_label:
            return targets.astype(np.float64).reshape(-1, 1)
        classes = [1] if self.n_outputs == 1 else range(self.n_outputs)
        outputs: npt.NDArray[np.float64] = (targets[:, None] == np.array(classes)).astype(np.float64)
        return outputs


def outputs_of(n_classes: int | None) -> Outputs:
    """Return what statistics a target has, None for a number: none if there are many classes."""
    if n_classes is None:
        return Outputs(1, is_label=False)
    return Outputs(1 if n_classes == 2 else n_classes if n_classes <= MOST_OUTPUTS else 0, is_label=True)


def folds_of(first: int, n_rows: int) -> Array:
    """Return the folds of consecutive training rows, of which `first` is the place of the first in its partition."""
    return (first + np.arange(n_rows)) % N_FOLDS


@dataclass(frozen=True, eq=False)
class TargetStatistics:
    """`counts` (folds, categories + 1) and `sums` (folds, outputs, categories + 1) of the target; missing and other
    categories share the last place."""

    counts: npt.NDArray[np.float64]
    sums: npt.NDArray[np.float64]

    @classmethod
    def empty(cls, n_categories: int, n_outputs: int) -> TargetStatistics:
        """Return statistics of no rows."""
        return cls(np.zeros((N_FOLDS, n_categories + 1)), np.zeros((N_FOLDS, n_outputs, n_categories + 1)))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TargetStatistics:
        """Parse what is stored."""
        counts = np.frombuffer(base64.b64decode(value["counts"]), "<f8").reshape(N_FOLDS, -1)
        sums = np.frombuffer(base64.b64decode(value["sums"]), "<f8")
        return cls(counts, sums.reshape(N_FOLDS, -1, counts.shape[1]))

    @property
    def n_outputs(self) -> int:
        """How many numbers a category has."""
        return int(self.sums.shape[1])

    def look(self, codes: Array, outputs: Array, folds: Array) -> tuple[Array, Array]:
        """Return counts and sums of training rows: codes (n,), what they are to predict (n, outputs), their folds."""
        places = folds * self.counts.shape[1] + self._places(codes)
        counts = np.bincount(places, minlength=self.counts.size).reshape(self.counts.shape)
        sums = [
            np.bincount(places, outputs[:, k], minlength=self.counts.size).reshape(self.counts.shape)
            for k in range(self.n_outputs)
        ]
        return counts, np.stack(sums, axis=1)

    def add(self, counts: Array, sums: Array) -> None:
        """Add what `look` returned."""
        self.counts[:] += counts
        self.sums[:] += sums

    def encode(self, codes: Array, folds: Array | None) -> npt.NDArray[np.float64]:
        """Return the mean targets of rows (n, outputs); of training rows, from the folds other than their own."""
        rows = np.full(len(codes), N_FOLDS) if folds is None else folds
        means: npt.NDArray[np.float64] = self._means[rows, :, self._places(codes)]
        return means

    def to_json(self) -> dict[str, JSON]:
        """Return what is stored."""
        return {
            name: base64.b64encode(values.astype("<f8").tobytes()).decode("ascii")
            for name, values in (("counts", self.counts), ("sums", self.sums))
        }

    @cached_property
    def _means(self) -> npt.NDArray[np.float64]:
        """Return means without each fold, and at last of all (folds + 1, outputs, categories + 1)."""
        return np.stack([self._means_without(fold) for fold in (*range(N_FOLDS), None)])

    def _means_without(self, fold: int | None) -> npt.NDArray[np.float64]:
        counts, sums = self.counts.sum(axis=0), self.sums.sum(axis=0)
        if fold is not None:
            counts, sums = counts - self.counts[fold], sums - self.sums[fold]
        prior = sums.sum(axis=1, keepdims=True) / max(counts.sum(), 1.0)
        means: npt.NDArray[np.float64] = (sums + PRIOR_ROWS * prior) / (counts + PRIOR_ROWS)
        return means

    def _places(self, codes: Array) -> Array:
        return np.where(codes < 0, self.counts.shape[1] - 1, codes)
