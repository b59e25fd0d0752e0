"""Row forms that are made column by column: each field declares its columns and writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from easeml_plpy.columns.encoder import Encoder, Field, NumericField
from easeml_plpy.columns.layout import FormColumn, Layout
from easeml_plpy.columns.task import InputType
from easeml_plpy.row_forms.contract import RowForm
from easeml_plpy.server.value_types import Array


class PlainNumbers(NamedTuple):
    """Numbers that become one column each, and the function that writes adjacent ones into (n, columns) at once: one by
    one, each would cost a single row several numpy calls.
    """

    has: Callable[[NumericField], bool]
    write: Callable[[tuple[NumericField, ...], Sequence[Array], Array], None]


@dataclass(frozen=True)
class FieldColumns:
    """The columns of a field, their number, and the function that writes its rows into (n, width).

    `write(field, values, folds, into)` gets the folds of training rows, None for other rows.
    """

    columns: Callable[[Field], Iterable[FormColumn]]
    width: Callable[[Field], int]
    write: Callable[[Field, Array, Array | None, Array], None]
    plain: PlainNumbers | None = None

    def is_plain(self, field: Field) -> bool:
        """Return whether a field is one of the plain numbers."""
        return self.plain is not None and isinstance(field, NumericField) and self.plain.has(field)


class _Run(NamedTuple):
    """Adjacent plain numbers, or any one other field; and their places."""

    first: Field
    plain: tuple[NumericField, ...]
    fields: slice
    columns: slice


def column_view(name: str, summary: str, input_type: InputType, made: FieldColumns) -> RowForm:
    """Return a row form of fields side by side."""

    @lru_cache(64)
    def runs(inputs: tuple[Field, ...]) -> tuple[_Run, ...]:
        return tuple(_runs(made, inputs))

    def shape(encoder: Encoder) -> tuple[int, ...]:
        return (runs(encoder.inputs)[-1].columns.stop,)

    def layout(encoder: Encoder) -> Layout:
        return tuple(column for field in encoder.inputs for column in made.columns(field))

    def encode(encoder: Encoder, fields: Sequence[Array], folds: Array | None) -> Array:
        field_runs = runs(encoder.inputs)
        rows = np.empty((len(fields[0]), field_runs[-1].columns.stop), input_type)
        for run in field_runs:
            into = rows[:, run.columns]
            if made.plain is not None and run.plain:
                made.plain.write(run.plain, fields[run.fields], into)
            else:
                made.write(run.first, fields[run.fields.start], folds, into)
        return rows

    return RowForm(name, summary, input_type, shape, layout, encode)


def _runs(made: FieldColumns, inputs: tuple[Field, ...]) -> Iterator[_Run]:
    """Yield the inputs, with adjacent plain numbers grouped."""
    field = column = 0
    for is_plain, members in groupby(inputs, key=made.is_plain):
        together = list(members)
        for some in [together] if is_plain else [[member] for member in together]:
            next_field, next_column = field + len(some), column + sum(map(made.width, some))
            plain = tuple(member for member in some if is_plain and isinstance(member, NumericField))
            yield _Run(some[0], plain, slice(field, next_field), slice(column, next_column))
            field, column = next_field, next_column
