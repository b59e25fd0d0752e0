"""The row form `table`, for networks: float32 (n, columns), every column between 0 and 1 or a code.

A number is its position among its knots: 0 at the first, 1 at the last, linear between two. So a piecewise linear
embedding is a function of this one number, and an outlier is clipped to the range that training saw. A missing number
is 0.5, and flagged where training had a missing one. A category is its code, and a missing one the last code. A time is
its position, and its calendar parts that vary as codes, but for the year, which the position tells. A text is the ids
of its tokens that row forms use, the commonest token being 0, and -1 for none.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from easeml_plpy.columns.calendar_parts import CYCLES, calendar_parts
from easeml_plpy.columns.coded_fields import NULL_TEXT, CategoricalField, TextField
from easeml_plpy.columns.encoder import Encoder, Field, Moment, NumberField, NumericField, TensorField
from easeml_plpy.columns.layout import FormColumn
from easeml_plpy.columns.one_row_math import RowNumbers
from easeml_plpy.row_forms.columns import FieldColumns, PlainNumbers, column_view
from easeml_plpy.server.value_types import Array

MIDDLE = 0.5
FIRST = {"month": 1, "day": 1, "weekday": 0, "hour": 0}


def has_table(encoder: Encoder) -> bool:
    """Return whether a dataset has this row form: not if it was packed before knots were introduced, nor if it is one
    array, whose elements are numbers of one kind.
    """
    fields = encoder.inputs
    is_array = len(fields) == 1 and isinstance(fields[0], TensorField)
    return not is_array and all(isinstance(field, CategoricalField | TextField) or field.knots for field in fields)


def _columns(field: Field) -> Iterator[FormColumn]:
    if isinstance(field, CategoricalField):
        yield FormColumn("category", field.column, cardinality=len(field.categories) + 1 + bool(field.missing))
        return
    if isinstance(field, TextField):
        yield from (FormColumn("token", field.column, str(k), len(field.tokens)) for k in range(field.width))
        yield from (FormColumn("flag", field.column) for _ in field.missing)
        return
    parts = [""] if isinstance(field, NumericField) else [str(k) for k in range(math.prod(field.shape))]
    for part, knots in zip(parts, _knots(field), strict=True):
        yield FormColumn("number", field.column, part, max(len(knots) - 1, 0))
    yield from (FormColumn("flag", field.column, parts[k]) for k in field.missing)
    yield from (FormColumn("category", field.column, part, CYCLES[part] + 1) for part in _cycles(field))


def _width(field: Field) -> int:
    if isinstance(field, CategoricalField):
        return 1
    if isinstance(field, TextField):
        return field.width + len(field.missing)
    return math.prod(field.shape) + len(field.missing) + len(_cycles(field))


def _knots(field: NumberField) -> Sequence[Moment]:
    """Return the knots of each element: those of its position, or of all at once."""
    n_elements = math.prod(field.shape)
    return field.knots if len(field.knots) == n_elements else field.knots * n_elements


def _cycles(field: NumberField) -> list[str]:
    return [part for part in field.calendar if part in CYCLES] if isinstance(field, NumericField) else []


def _write_plain(fields: tuple[NumericField, ...], values: Sequence[Array], into: Array) -> None:
    if len(into) == 1:
        numbers = values.values if isinstance(values, RowNumbers) else np.concatenate(values).tolist()
        into[0] = _positions_of_row(_scales(fields), numbers)
    else:
        for k, (field, column) in enumerate(zip(fields, values, strict=True)):
            into[:, k] = positions(field.knots[0], column)


def _write(field: Field, values: Array, folds: Array | None, into: Array) -> None:
    if isinstance(field, CategoricalField):
        into[:, 0] = np.where(values < 0, len(field.categories) + 1, values)
    elif isinstance(field, TextField):
        into[:, : field.width] = field.known(values)
        if field.missing:
            into[:, -1] = values[:, 0] == NULL_TEXT
    else:
        _write_numbers(field, values.reshape(len(values), -1), into)


def _write_numbers(field: NumberField, values: Array, into: Array) -> None:
    n_elements = values.shape[1]
    if len(values) == 1:
        into[0, :n_elements] = _positions_of_row(_scales((field,)), values[0].tolist())
    else:
        for k, knots in enumerate(_knots(field)):
            into[:, k] = positions(knots, values[:, k])
    if field.missing:
        flags = slice(n_elements, n_elements + len(field.missing))
        into[:, flags] = np.isnan(values[:, list(field.missing)])
    cycles = _cycles(field)
    if cycles:
        parts = calendar_parts(values[:, 0], cycles) - [FIRST[name] for name in cycles]
        into[:, -len(cycles) :] = np.where(np.isnan(parts), [CYCLES[name] for name in cycles], parts)


def positions(knots: Moment, values: Array) -> Array:
    """Return where numbers (n,) lie among ascending knots, from 0 to 1; in the middle if it is undefined."""
    if len(knots) < 2:
        return np.full(len(values), MIDDLE)
    placed = np.interp(values, knots, _even(len(knots)))
    return np.where(np.isnan(values), MIDDLE, placed)


class _Scale(NamedTuple):
    """The knots of one number in plain Python, because for one row numpy's calls take longer than its computation.
    `lines`: by the number of knots below a value, the line on which it lies: its beginning, its slope, its first value.
    Outside the knots the line is level.
    """

    knots: list[float]
    lines: list[tuple[float, float, float]]

    @classmethod
    def of(cls, knots: Moment) -> _Scale:
        """Return the scale of ascending knots."""
        if len(knots) < 2:
            return cls([], [(0.0, 0.0, MIDDLE)])
        at, even = knots.tolist(), _even(len(knots)).tolist()
        steps = zip(at, at[1:], even, even[1:], strict=False)
        lines = [(a, (d - c) / (b - a) if b > a else 0.0, c) for a, b, c, d in steps]
        return cls(at, [(0.0, 0.0, even[0]), *lines, (0.0, 0.0, even[-1])])


def _positions_of_row(scales: Sequence[_Scale], numbers: Sequence[float]) -> list[float]:
    """Return what `positions` does for one number of each scale."""
    placed = []
    for (knots, lines), number in zip(scales, numbers, strict=True):
        start, slope, first = lines[bisect_right(knots, number)]
        placed.append(slope * (number - start) + first if number == number else MIDDLE)
    return placed


@lru_cache(4096)
def _scales(fields: tuple[NumberField, ...]) -> list[_Scale]:
    return [_Scale.of(knots) for field in fields for knots in _knots(field)]


@cache
def _even(n: int) -> Array:
    """Return n numbers from 0 to 1, evenly spread; making them takes longer than to place one row among them."""
    return np.linspace(0.0, 1.0, n)


PLAIN_NUMBERS = PlainNumbers(lambda field: not field.missing and not _cycles(field), _write_plain)
TABLE = column_view(
    "table",
    "float32 for networks: positions among quantiles, flags where missing, codes of categories, tokens and calendar",
    "float32",
    FieldColumns(_columns, _width, _write, PLAIN_NUMBERS),
)
