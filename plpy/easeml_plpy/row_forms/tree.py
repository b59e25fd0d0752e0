"""The row form `tree`: float64 (n, columns), the values of a row unchanged, because trees only compare.

A missing number is NaN, and so is a missing category where training had one. A category is its code; one that training
did not know has the code after the last. If there are many categories, the mean target of the category stands beside
its code, out of fold for training rows. A time is its seconds since 1970 and those calendar parts that vary. A text is
the number of its tokens, and a flag for each of the commonest tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from easeml_plpy.columns.calendar_parts import calendar_parts
from easeml_plpy.columns.coded_fields import NULL_TEXT, CategoricalField, TextField
from easeml_plpy.columns.encoder import Field, NumericField, TensorField
from easeml_plpy.columns.layout import FormColumn
from easeml_plpy.columns.one_row_math import numbers_of
from easeml_plpy.row_forms.columns import FieldColumns, PlainNumbers, column_view
from easeml_plpy.server.value_types import Array

N_FLAGS = 64
"""Tokens of a text that trees see one by one."""


def _columns(field: Field) -> Iterator[FormColumn]:
    name = field.column
    if isinstance(field, CategoricalField):
        yield FormColumn("category", name, cardinality=len(field.categories) + 1)
        yield from (FormColumn("number", name, f"target {k}") for k in range(_n_targets(field)))
    elif isinstance(field, TextField):
        yield FormColumn("number", name, "tokens")
        yield from (FormColumn("flag", name, f"token {k}") for k in range(_n_flags(field)))
    elif isinstance(field, TensorField):
        yield from (FormColumn("number", name, str(k)) for k in range(math.prod(field.shape)))
    else:
        yield FormColumn("number", name)
        yield from (FormColumn("number", name, part) for part in field.calendar)


def _width(field: Field) -> int:
    if isinstance(field, CategoricalField):
        return 1 + _n_targets(field)
    if isinstance(field, TextField):
        return 1 + _n_flags(field)
    return math.prod(field.shape) if isinstance(field, TensorField) else 1 + len(field.calendar)


def _n_targets(field: CategoricalField) -> int:
    return 0 if field.targets is None else field.targets.n_outputs


def _n_flags(field: TextField) -> int:
    return min(N_FLAGS, len(field.tokens))


def _write_plain(fields: Sequence[NumericField], values: Sequence[Array], into: Array) -> None:
    if len(into) == 1:
        into[0] = numbers_of(values)
    else:
        np.stack(values, axis=1, out=into)


def _write(field: Field, values: Array, folds: Array | None, into: Array) -> None:
    if isinstance(field, CategoricalField):
        into[:, 0] = np.where(values < 0, np.nan, values)
        if field.targets is not None:
            into[:, 1:] = field.targets.encode(values, folds)
    elif isinstance(field, TextField):
        _write_text(field, values, into)
    elif isinstance(field, TensorField):
        into[:] = values.reshape(len(values), -1)
    else:
        into[:, 0] = values
        into[:, 1:] = calendar_parts(values, field.calendar)


def _write_text(field: TextField, hashes: Array, into: Array) -> None:
    is_missing = hashes[:, 0] == NULL_TEXT
    into[:, 0] = np.where(is_missing, np.nan, (hashes >= 0).sum(axis=1))
    into[:, 1:] = 0
    ids = field.known(hashes)
    rows, places = np.nonzero((ids >= 0) & (ids < _n_flags(field)))
    into[rows, 1 + ids[rows, places]] = 1


TREE = column_view(
    "tree",
    "float64: numbers as they are, NaN where missing, codes and mean targets of categories, calendar parts of times",
    "float64",
    FieldColumns(_columns, _width, _write, PlainNumbers(lambda field: not field.calendar, _write_plain)),
)
