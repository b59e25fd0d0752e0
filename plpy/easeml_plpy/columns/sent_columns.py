"""Columns of some thousand rows, on their way to Python as one value of bytea.

All numbers of the rows come first, as one array of the server; then the bytes of each image, and each array as the
server keeps it, one row after another. Rows that are sent one by one (columns.py) cost a function call for each value,
and have to be split up again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.encoder import NumberField, NumericField, TensorField
from easeml_plpy.server.value_types import Array

NUMBERS = "numbers"
HEAD_BYTES = 20
"""Of an array of one dimension as the server stores it, without its length word (array.h)."""
Parts = Sequence[tuple[NumberField, str]]


def payload_sql(values: Parts, schema: str = "easeml", *, is_by_column: bool = False) -> str:
    """Return SQL of the bytes of these columns, aggregates of their values. An image of another size is left out, so
    that the length reveals it.

    is_by_column: whether all numbers of a column come before those of the next, which takes nothing newer than
    PostgreSQL 9.4.
    """
    numbers = [
        columns_of.send_sql(field, value, "", schema) for field, value in values if isinstance(field, NumericField)
    ]
    all_numbers = f"array_agg(ARRAY[{', '.join(numbers)}])"
    if is_by_column:
        all_numbers = " || ".join(f"array_agg({number})" for number in numbers)
    parts = [f"{schema}.array_bytes({all_numbers})"] if numbers else []
    parts += [_tensors_sql(field, value, schema) for field, value in values if isinstance(field, TensorField)]
    return " || ".join(parts) or "NULL::bytea"


def decode_payload(
    fields: Sequence[NumberField], payload: bytes | None, n_rows: int, *, is_by_column: bool = False
) -> list[Array]:
    """Return the fields of a number of rows. Raises InvalidData."""
    layout = np.dtype(list(_layout(fields, n_rows, 1 if is_by_column else 2)))
    n_bytes = len(payload or b"")
    if n_bytes != layout.itemsize:
        raise columns_of.misshapen(f"{n_rows} rows take {n_bytes} bytes, expected {layout.itemsize}.")
    if payload is None:
        return []
    whole = np.frombuffer(payload, layout, 1)
    elements = whole[NUMBERS]["elements"] if NUMBERS in (layout.names or ()) else np.empty(0)
    numbers = iter(elements.reshape(-1, n_rows).astype(np.float64) if is_by_column else _columns(elements, n_rows))
    return [
        next(numbers) if isinstance(field, NumericField) else _tensors(field, whole[f"tensor_{k}"][0])
        for k, field in enumerate(fields)
    ]


def _tensors_sql(field: TensorField, value: str, schema: str) -> str:
    if field.is_array:
        return f"string_agg({columns_of.send_sql(field, value, '', schema)}, ''::bytea)"
    return f"string_agg(CASE WHEN octet_length({value}) = {math.prod(field.shape)} THEN {value} END, ''::bytea)"


def _layout(fields: Sequence[NumberField], n_rows: int, rank: int) -> Iterator[tuple[Any, ...]]:
    n_numbers = n_rows * sum(isinstance(field, NumericField) for field in fields)
    if n_numbers:
        yield NUMBERS, columns_of.array_layout("<f8", rank, n_numbers)
    for k, field in enumerate(fields):
        if isinstance(field, TensorField):
            size = math.prod(field.shape)
            array = columns_of.array_layout(field.wire, field.wire_rank, size) if field.is_array else None
            yield f"tensor_{k}", array or (field.stored_type, field.shape), (n_rows,)


def _columns(numbers: Array, n_rows: int) -> Array:
    return np.array(numbers.reshape(n_rows, -1).T, np.float64, order="C")


def _tensors(field: TensorField, sent: Array) -> Array:
    return columns_of.elements_of(field, sent) if field.is_array else sent


def int8s(stored: bytes | None) -> npt.NDArray[np.int64]:
    """Return the numbers of an int8[] of one dimension without NULL, as easeml.array_bytes returns it."""
    return np.frombuffer(stored or bytes(HEAD_BYTES), np.int64, offset=HEAD_BYTES)
