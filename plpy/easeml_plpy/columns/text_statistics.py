"""How often tokens occur in the training texts of a field, and which of them row forms use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from easeml_plpy.columns.coded_fields import NULL_TEXT, TextField
from easeml_plpy.columns.tokens import N_HASHES
from easeml_plpy.server.value_types import Array

MOST_KNOWN = 1 << 15
LEAST_ROWS = 2
"""A token of one text tells nothing about others."""


def token_frequencies(hashes: Array) -> Array:
    """Return how many of the rows (n, width) have each token."""
    return np.bincount(hashes[hashes >= 0], minlength=N_HASHES)


class TokenCounts:
    """Document frequencies of the tokens of one field."""

    def __init__(self) -> None:
        self._counts = np.zeros(N_HASHES, np.int64)
        self._n_rows, self._n_missing = 0, 0

    def add(self, hashes: Array) -> None:
        """Count the tokens of training rows (n, width), each of which occurs once a row."""
        self.combine(token_frequencies(hashes), len(hashes), int((hashes[:, 0] == NULL_TEXT).sum()))

    def combine(self, frequencies: Array, n_rows: int, n_missing: int) -> None:
        """Add the counts of a number of training rows."""
        self._counts += frequencies
        self._n_rows += n_rows
        self._n_missing += n_missing

    def measured(self, field: TextField) -> TextField:
        """Return the field with its commonest tokens and their weights, ln((1 + n) / (1 + frequency)) + 1."""
        common = np.argsort(-self._counts, kind="stable")[:MOST_KNOWN]
        tokens = common[self._counts[common] >= LEAST_ROWS]
        n_known = self._n_rows - self._n_missing
        weights = np.log((1 + n_known) / (1 + self._counts[tokens])) + 1
        missing = (0,) if self._n_missing else ()
        return replace(field, tokens=tokens.astype(np.int32), weights=weights.astype(np.float32), missing=missing)
