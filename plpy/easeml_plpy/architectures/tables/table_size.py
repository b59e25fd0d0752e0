"""Width and size of the first layer of a network for tables, known before torch is imported."""

from __future__ import annotations

import math

from easeml_plpy.architectures.size import Size
from easeml_plpy.columns.layout import FormColumn, Layout
from easeml_plpy.columns.task import Task

TOKEN_SIZE, MOST_TOKENS = 32, 8192
"""Length of the vector of a text, the sum over its tokens; and how many tokens have one, the commonest of each text:
every step goes through all of them."""
UNIT_SPREAD = math.sqrt(12.0)
"""Scales a number spread evenly over an interval of length 1 to unit variance."""


def is_placed(column: FormColumn) -> bool:
    """Return whether a column is a number placed among knots."""
    return column.kind == "number" and column.cardinality > 0


def is_plain(column: FormColumn) -> bool:
    """Return whether a column goes through as it is."""
    return column.kind == "flag" or (column.kind == "number" and not column.cardinality)


def text_columns(layout: Layout) -> list[list[int]]:
    """Return the columns of each text of the layout."""
    texts: dict[str, list[int]] = {}
    for k, column in enumerate(layout):
        if column.kind == "token":
            texts.setdefault(column.field, []).append(k)
    return list(texts.values())


def n_known_tokens(column: FormColumn) -> int:
    """Return how many tokens of a text have a vector."""
    return min(column.cardinality, MOST_TOKENS)


def embedded_width(layout: Layout, size: int) -> int:
    """Return the width of the rows that TableEmbedding makes."""
    n_embedded = sum(is_placed(column) or column.kind == "category" for column in layout)
    return sum(map(is_plain, layout)) + n_embedded * size + len(text_columns(layout)) * TOKEN_SIZE


def first_layer_size(task: Task, size: int) -> tuple[Size, int]:
    """Return the size of the first layer, and the width of the rows that it makes."""
    if not task.layout:
        return Size(0, 0), task.n_features
    n_bins = [column.cardinality for column in task.layout if is_placed(column)]
    n_codes = sum(column.cardinality for column in task.layout if column.kind == "category")
    n_tokens = sum(n_known_tokens(task.layout[columns[0]]) + 1 for columns in text_columns(task.layout))
    n_vectors = len(n_bins) * (max(n_bins, default=0) + 2) + n_codes
    width = embedded_width(task.layout, size)
    return Size(n_vectors * size + n_tokens * TOKEN_SIZE, len(n_bins) * max(n_bins, default=0) + width), width
