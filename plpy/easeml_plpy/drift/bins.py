"""Bins of one column, as its training rows fill them: tenths of numbers, the commonest categories.

The last bin counts missing values. Categories have two more bins before it: rare ones, and those that no training row
had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from easeml_plpy.server.value_types import Array

N_BINS = 10
MOST_CATEGORIES = 50
UNKNOWN, MISSING = -2, -1
"""Codes of new rows: a category that no training row had, and none at all."""


class Bins(Protocol):
    """Counts values by bin."""

    @property
    def trained(self) -> Array:
        """Training rows in each bin."""

    def counts(self, values: Array) -> Array:
        """Return how many of these values are in each bin."""

    def n_unseen(self, values: Array) -> int:
        """Count the values that no training row had: new categories, numbers beyond the least and the greatest."""


@dataclass(frozen=True)
class NumberBins:
    """Numbers up to each edge, then those beyond the last; `low` and `high` are the ends of the training rows."""

    edges: Array
    low: float
    high: float
    trained: Array

    @classmethod
    def of(cls, values: Array) -> NumberBins:
        """Return bins with equally many of these training rows each; one bin per number if there are few numbers."""
        finite = values[np.isfinite(values)]
        distinct = np.unique(finite)
        edges = distinct[:-1] if len(distinct) <= N_BINS else np.unique(np.sort(finite)[tenth_places(len(finite))])
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (np.inf, -np.inf)
        bins = cls(edges, low, high, np.empty(0))
        return cls(edges, low, high, bins.counts(values))

    def counts(self, values: Array) -> Array:
        """Return how many of these numbers are in each bin; NaN is missing."""
        places = np.where(np.isnan(values), len(self.edges) + 1, np.searchsorted(self.edges, values))
        return np.bincount(places, minlength=len(self.edges) + 2)

    def n_unseen(self, values: Array) -> int:
        """Count the numbers beyond the ends."""
        return int(((values < self.low) | (values > self.high)).sum())


@dataclass(frozen=True)
class CategoryBins:
    """Codes of categories; `place` is the bin of each category, and `seen` how many training rows had it."""

    place: Array
    seen: Array
    trained: Array

    @classmethod
    def of(cls, codes: Array, n_categories: int) -> CategoryBins:
        """Return bins for the commonest of these training rows' categories."""
        bins = cls.seen_as(seen_codes(codes, n_categories))
        return cls(bins.place, bins.seen, bins.counts(codes))

    @classmethod
    def seen_as(cls, seen: Array) -> CategoryBins:
        """Return bins for categories with their numbers of training rows, which are not counted in the bins yet."""
        n_categories = len(seen)
        common = np.argsort(-seen, kind="stable")[:MOST_CATEGORIES]
        place = np.full(n_categories, len(common))
        place[common] = np.arange(len(common))
        return cls(place, seen, np.empty(0))

    def counts(self, values: Array) -> Array:
        """Return how many of these codes are in each bin."""
        n_common = min(len(self.place), MOST_CATEGORIES)
        # Behind the places of all categories stand those of UNKNOWN and MISSING, which as indexes are the last two. A
        # training row whose text was too rare for a code has the one after all codes, which is UNKNOWN's place, too.
        places = np.append(self.place, [n_common + 1, n_common + 2])[values]
        return np.bincount(places, minlength=n_common + 3)

    def n_unseen(self, values: Array) -> int:
        """Count the codes of categories that no training row had."""
        return int((values == UNKNOWN).sum())


def tenth_places(n: int) -> Array:
    """Return where the tenths of n sorted numbers are, each the lower of two."""
    return np.floor((n - 1) * (np.arange(1, N_BINS) / N_BINS)).astype(np.intp)


def seen_codes(codes: Array, n_categories: int) -> Array:
    """Return how many of these codes are of each category."""
    return np.bincount(codes[(codes >= 0) & (codes < n_categories)], minlength=n_categories)
