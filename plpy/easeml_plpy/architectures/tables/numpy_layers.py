"""Layers of networks that predict without torch: numpy functions over the weights of a state.

Importing torch takes a second and a half of computing, more than all else in a session that predicts a few rows. Names
are those that torch modules give their weights. Answers equal torch's up to rounding in 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from easeml_plpy.architectures.tables.table_size import UNIT_SPREAD, is_placed, is_plain, n_known_tokens, text_columns
from easeml_plpy.columns.layout import Layout
from easeml_plpy.server.value_types import Array, Floats

Weights: TypeAlias = Mapping[str, Array]
Layer: TypeAlias = Callable[[Floats], Floats]
"""From float32 (n, ...) to float32 (n, ...)."""

LAYER_NORM_EPSILON = 1e-5
FEW_NUMBERS = 4096


def sequence(layers: Sequence[Layer]) -> Layer:
    """Return the layers one after another."""

    def forward(rows: Floats) -> Floats:
        for layer in layers:
            rows = layer(rows)
        return rows

    return forward


def flat(rows: Floats) -> Floats:
    """Return rows as (n, features)."""
    return rows.reshape(len(rows), -1)


def linear(weights: Weights, name: str) -> Layer:
    """Return an nn.Linear."""
    weight, bias = np.ascontiguousarray(weights[f"{name}.weight"].T), weights[f"{name}.bias"]

    def forward(rows: Floats) -> Floats:
        outputs: Floats = rows @ weight
        outputs += bias
        return outputs

    return forward


def relu(rows: Floats) -> Floats:
    """Return an nn.ReLU's outputs, written over its inputs."""
    return np.maximum(rows, _zeros(rows.shape[1:]), out=rows)


@lru_cache(maxsize=64)
def _zeros(shape: tuple[int, ...]) -> Floats:
    """Return a row of zeros: numpy takes up to three times as long to compare with one number."""
    return np.zeros((1, *shape), np.float32)


def gelu(rows: Floats) -> Floats:
    """Return an nn.GELU's outputs."""
    if rows.size <= FEW_NUMBERS:
        errors = np.array([math.erf(number) for number in (rows.ravel() / math.sqrt(2.0)).tolist()], np.float32)
        return np.asarray(rows * (errors.reshape(rows.shape) + 1) / 2, np.float32)
    from scipy.special import erf

    return np.asarray(rows * (erf(rows / np.float32(math.sqrt(2.0))) + 1) / 2, np.float32)


ACTIVATIONS: dict[str, Layer] = {"relu": relu, "tanh": np.tanh, "gelu": gelu}


def layer_norm(weights: Weights, name: str) -> Layer:
    """Return an nn.LayerNorm over the last dimension."""
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def forward(rows: Floats) -> Floats:
        centred = rows - rows.mean(axis=1, keepdims=True)
        variance = np.square(centred).mean(axis=1, keepdims=True)
        outputs: Floats = centred / np.sqrt(variance + np.float32(LAYER_NORM_EPSILON)) * weight + bias
        return outputs

    return forward


def first_layer(layout: Layout, weights: Weights, name: str) -> Layer:
    """Return what makes one row of numbers of the input: embedded columns, or the flattened array."""
    return table_embedding(layout, weights, f"{name}.parts") if layout else flat


def table_embedding(layout: Layout, weights: Weights, name: str) -> Layer:
    """Return a TableEmbedding (table_embedding.py)."""
    plain = [k for k, column in enumerate(layout) if is_plain(column)]
    numbers = [k for k, column in enumerate(layout) if is_placed(column)]
    categories = [k for k, column in enumerate(layout) if column.kind == "category"]
    made: list[tuple[list[int], Layer]] = [(plain, flat)] if plain else []
    makers: list[tuple[list[int], Callable[[Weights, str], Layer]]] = []
    makers += [(numbers, _placed_numbers)] if numbers else []
    makers += [(categories, _categories)] if categories else []
    makers += [(columns, _tokens(n_known_tokens(layout[columns[0]]))) for columns in text_columns(layout)]
    made += [(columns, make(weights, f"{name}.{k}")) for k, (columns, make) in enumerate(makers)]
    if len(made) == 1:
        return made[0][1]  # all columns are of one kind

    def forward(rows: Floats) -> Floats:
        return np.concatenate([layer(rows[:, columns]) for columns, layer in made], axis=1)

    return forward


def _placed_numbers(weights: Weights, name: str) -> Layer:
    """Return a _PlacedNumbers. Within a bin it is linear: its value at the beginning of the bin, plus what the bin
    adds.
    """
    n_bins = weights[f"{name}.n_bins"]
    greatest = n_bins - 1
    begins, adds = _bins(weights, name)
    first = np.arange(len(begins)) * begins.shape[1]
    begins, adds = (array.reshape(-1, array.shape[2]) for array in (begins, adds))

    def forward(positions: Floats) -> Floats:
        places = positions * n_bins
        bins = np.minimum(places, greatest).astype(np.intp)
        places -= bins
        bins += first
        vectors = adds.take(bins, axis=0)
        vectors *= places[:, :, None]
        vectors += begins.take(bins, axis=0)
        return flat(relu(vectors))

    return forward


def _bins(weights: Weights, name: str) -> tuple[Floats, Floats]:
    """Return, for each bin of each number, the sum of a _PlacedNumbers at the beginning of the bin, and what a full bin
    adds.

    All bins below a position are full except the last. The slope adds an equal part in each bin.
    """
    bins, slope, bias = (weights[f"{name}.{part}"].astype(np.float64) for part in ("bins", "slope", "bias"))
    n_bins = weights[f"{name}.n_bins"].astype(np.float64)
    adds = bins + (UNIT_SPREAD * slope / n_bins[:, None])[:, None]
    at_first = (bias - UNIT_SPREAD / 2 * slope)[:, None]
    begins = np.concatenate([at_first, at_first + np.cumsum(adds, axis=1)[:, :-1]], axis=1)
    return begins.astype(np.float32), adds.astype(np.float32)


def _categories(weights: Weights, name: str) -> Layer:
    """Return a _Categories."""
    table, first = weights[f"{name}.table.weight"], weights[f"{name}.first"]

    def forward(codes: Floats) -> Floats:
        return flat(table[codes.astype(np.int64) + first])

    return forward


def _tokens(n_tokens: int) -> Callable[[Weights, str], Layer]:
    """Return what makes a _Tokens."""

    def make(weights: Weights, name: str) -> Layer:
        table = weights[f"{name}.bag.weight"].copy()
        table[n_tokens] = 0  # of no token, and of rare ones

        def forward(ids: Floats) -> Floats:
            whole = ids.astype(np.int64)
            is_known = (whole >= 0) & (whole < n_tokens)
            sums: Floats = table[np.where(is_known, whole, n_tokens)].sum(axis=1)
            return sums

        return forward

    return make
