"""Views that are made column by column: each field says what columns it becomes, and writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from easeml_plpy.encoder import Encoder, Field
from easeml_plpy.layout import Layout, ViewColumn
from easeml_plpy.task import InputType
from easeml_plpy.value_types import Array
from easeml_plpy.views.contract import View


@dataclass(frozen=True)
class FieldColumns:
    """What a field becomes: its columns, how many they are, and what writes rows of it into (n, width).

    `write(field, values, folds, into)` gets the folds of training rows, None for other rows.
    """

    columns: Callable[[Field], Iterable[ViewColumn]]
    width: Callable[[Field], int]
    write: Callable[[Field, Array, Array | None, Array], None]


def column_view(name: str, summary: str, input_type: InputType, made: FieldColumns) -> View:
    """Return a view of fields side by side."""

    @lru_cache(64)
    def widths(inputs: tuple[Field, ...]) -> tuple[int, ...]:
        return tuple(map(made.width, inputs))

    def shape(encoder: Encoder) -> tuple[int, ...]:
        return (sum(widths(encoder.inputs)),)

    def layout(encoder: Encoder) -> Layout:
        return tuple(column for field in encoder.inputs for column in made.columns(field))

    def encode(encoder: Encoder, fields: Sequence[Array], folds: Array | None) -> Array:
        rows = np.empty((len(fields[0]), *shape(encoder)), input_type)
        start = 0
        for field, values, width in zip(encoder.inputs, fields, widths(encoder.inputs), strict=True):
            stop = start + width
            made.write(field, values, folds, rows[:, start:stop])
            start = stop
        return rows

    return View(name, summary, input_type, shape, layout, encode)
