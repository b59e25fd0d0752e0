"""The view `tree`: float64 (n, columns), what a row says as it says it, since trees only compare.

A missing number is NaN, and so is a missing category where training had one. A category is its code; one that training
did not know has the code after the last. A time is its seconds since 1970 and those calendar parts that vary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from easeml_plpy.calendar_parts import calendar_parts
from easeml_plpy.encoder import CategoricalField, Encoder, Field, TensorField
from easeml_plpy.layout import Layout, ViewColumn
from easeml_plpy.value_types import Array
from easeml_plpy.views.contract import View


def _layout(encoder: Encoder) -> Layout:
    return tuple(column for field in encoder.inputs for column in _columns(field))


def _columns(field: Field) -> Iterator[ViewColumn]:
    if isinstance(field, CategoricalField):
        yield ViewColumn("category", field.column, cardinality=len(field.categories) + 1)
    elif isinstance(field, TensorField):
        yield from (ViewColumn("number", field.column, str(k)) for k in range(math.prod(field.shape)))
    else:
        yield ViewColumn("number", field.column)
        yield from (ViewColumn("number", field.column, part) for part in field.calendar)


def _shape(encoder: Encoder) -> tuple[int, ...]:
    return (sum(map(_width, encoder.inputs)),)


def _width(field: Field) -> int:
    if isinstance(field, CategoricalField):
        return 1
    return math.prod(field.shape) if isinstance(field, TensorField) else 1 + len(field.calendar)


def _encode(encoder: Encoder, fields: Sequence[Array]) -> npt.NDArray[np.float64]:
    rows = np.empty((len(fields[0]), *_shape(encoder)))
    start = 0
    for field, values in zip(encoder.inputs, fields, strict=True):
        stop = start + _width(field)
        _write(field, values, rows[:, start:stop])
        start = stop
    return rows


def _write(field: Field, values: Array, into: npt.NDArray[np.float64]) -> None:
    if isinstance(field, CategoricalField):
        into[:, 0] = np.where(values < 0, np.nan, values)
    elif isinstance(field, TensorField):
        into[:] = values.reshape(len(values), -1)
    else:
        into[:, 0] = values
        if field.calendar:
            into[:, 1:] = calendar_parts(values, field.calendar)


TREE = View(
    name="tree",
    summary="float64: numbers as they are, NaN where missing, categories as codes, calendar parts of times",
    input_type="float64",
    shape=_shape,
    layout=_layout,
    encode=_encode,
)
