"""Why a trial gives its answer for a row: Shapley values of the features, estimated from predictions for mixed rows.

In a random order, one feature after another takes the row's value instead of that of a background row (Strumbelj and
Kononenko 2014); each order is walked forwards and backwards. So the sum of all contributions is exact, and each one is
an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from easeml_plpy.evaluation.features import Feature, mixed
from easeml_plpy.server.value_types import Array

INDEXES_AT_ONCE = 1 << 21
BYTES_AT_ONCE = 1 << 28
"""Bytes of mixed rows at a time: few of them if images are large."""


class Attribution(NamedTuple):
    """The answer without knowing the row (`base`), the contribution of each feature, and the standard errors of the
    contributions; None if they are exact.
    """

    base: float
    parts: Array
    errors: Array | None


def sampled_attribution(
    answer: Callable[[Sequence[Array]], Array],
    rows: tuple[Sequence[Array], Sequence[Array]],
    features: Sequence[Feature],
    *,
    n_orders: int,
    seed: int,
) -> Attribution:
    """Return the estimate from a number of orders, at least two, each with a background row of its own.

    `answer` takes the fields of rows and returns numbers (n,); `rows` are the fields of the row and of the background.
    """
    row, background = rows
    fields = [np.concatenate(both) for both in zip(row, background, strict=True)]
    rng, n_features = np.random.default_rng(seed), len(features)
    others = 1 + _cycled(rng, len(background[0]), n_orders)
    orders = rng.permuted(np.tile(np.arange(n_features), (n_orders, 1)), axis=1)
    row_bytes = sum(values.nbytes for values in row)
    at_once = min(INDEXES_AT_ONCE // (n_features + 1), BYTES_AT_ONCE // row_bytes) // (2 * (n_features + 1))
    at_once = max(1, at_once)
    bases, parts = [], []
    for start in range(0, n_orders, at_once):
        some = slice(start, start + at_once)
        both = np.concatenate([orders[some], orders[some, ::-1]])
        chains = _chains(both, np.tile(others[some], 2))
        answers = answer(mixed(fields, features, chains.reshape(-1, n_features))).reshape(len(both), -1)
        steps = np.empty((len(both), n_features))
        np.put_along_axis(steps, both, np.diff(answers, axis=1), axis=1)
        parts.append((steps[: len(both) // 2] + steps[len(both) // 2 :]) / 2)
        bases.append(answers[: len(both) // 2, 0])
    changes = np.concatenate(parts)
    errors = changes.std(axis=0, ddof=1) / np.sqrt(n_orders)
    return Attribution(float(np.concatenate(bases).mean()), changes.mean(axis=0), errors)


def _cycled(rng: np.random.Generator, n_background: int, n_orders: int) -> Array:
    """Return background rows for the orders, each equally often except for the remainder."""
    rounds = [rng.permutation(n_background) for _ in range(-(-n_orders // n_background))]
    return np.concatenate(rounds)[:n_orders]


def _chains(orders: Array, others: Array) -> Array:
    """Return index matrices (n_orders, n_features + 1, n_features): row 0 is the row itself, which features join in
    their order, the others are of the background."""
    places = np.argsort(orders, axis=1)
    has_joined = places[:, None, :] < np.arange(orders.shape[1] + 1)[None, :, None]
    return np.where(has_joined, 0, others[:, None, None])
