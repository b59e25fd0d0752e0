"""Rows to PostgreSQL's binary COPY format, a chunk at a time and nothing per row in Python.

A tuple is int16 n_fields, then for each field int32 length (-1: NULL) and that many bytes, all big-endian.
So a chunk is one numpy array of a packed structured type, each field as wide as the widest value of the
chunk; where values are shorter or NULL, a mask over the bytes leaves the padding out, or where only the last
field of wide tuples has padding, each is cut at its end. An array value is a
header (rank, has-null flag, element oid, then size and lower bound of each dimension) and its elements, each
with its own length. Layouts: PostgreSQL manual, COPY, "Binary Format"; `array_send` in arrayfuncs.c.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from easeml_loaders.source import Chunk, Column, Values
from easeml_plpy.server.errors import InvalidData

MAX_PADDED_BYTES = 32 * 1024 * 1024  # a chunk that pads to more than this is encoded in halves
WIDE_BYTES = 128  # of a tuple: from here on to cut it costs less than to look at each of its bytes

ELEMENTS: dict[str, tuple[str, int]] = {  # SQL type: layout of a value on the wire, oid
    "boolean": ("?", 16),
    "smallint": (">i2", 21),
    "integer": (">i4", 23),
    "bigint": (">i8", 20),
    "real": (">f4", 700),
    "double precision": (">f8", 701),
    "date": (">i4", 1082),
    "timestamp without time zone": (">i8", 1114),
    "timestamp with time zone": (">i8", 1184),
}
TEXTS = ("text", "character varying")
BYTE_STRINGS = (*TEXTS, "bytea", "numeric")
SUPPORTED_TYPES = (*ELEMENTS, *BYTE_STRINGS)


def encode_rows(columns: Sequence[Column], chunk: Chunk) -> Iterator[bytes]:
    """Yield the chunk as tuples of the COPY stream, without the stream's header and trailer."""
    n_rows = len(chunk[0].data)
    if n_rows == 0:
        return
    row = row_layout(columns, chunk)
    if n_rows > 1 and n_rows * row.itemsize > MAX_PADDED_BYTES:
        middle = n_rows // 2
        yield from encode_rows(columns, [_rows(values, slice(None, middle)) for values in chunk])
        yield from encode_rows(columns, [_rows(values, slice(middle, None)) for values in chunk])
    else:
        yield _encoded(columns, chunk, np.empty(n_rows, row))


def row_layout(columns: Sequence[Column], chunk: Chunk) -> np.dtype[np.void]:
    """Return the packed structured type of one padded tuple: n_fields, then length_i and value_i of every field."""
    parts: list[tuple[str, Any]] = [("n_fields", ">i2")]
    for i, (column, values) in enumerate(zip(columns, chunk, strict=True)):
        parts += [(f"length_{i}", ">i4"), (f"value_{i}", _value_layout(column, values))]
    return np.dtype(parts)


def _value_layout(column: Column, values: Values) -> np.dtype[Any]:
    if column.element in BYTE_STRINGS:
        return np.dtype(("u1", (_width(values.data),)))
    layout = np.dtype(ELEMENTS[column.element][0])
    if not column.shape:
        return layout
    element = np.dtype([("length", ">i4"), ("value", layout)])
    n_header_words = 3 + 2 * len(column.shape)
    n_elements = int(np.prod(column.shape))
    return np.dtype([("header", ">i4", (n_header_words,)), ("elements", element, (n_elements,))])


def _width(data: NDArray[Any] | list[bytes]) -> int:
    """Return the most bytes that one value takes."""
    if isinstance(data, list):
        return max(map(len, data))
    return data.dtype.itemsize if data.dtype.kind == "S" else int(np.prod(data.shape[1:]))


def _rows(values: Values, rows: slice) -> Values:
    return Values(values.data[rows], None if values.is_null is None else values.is_null[rows])


def _encoded(columns: Sequence[Column], chunk: Chunk, rows: NDArray[np.void]) -> bytes:
    """Fill the padded tuples and leave out what is padding."""
    rows["n_fields"] = len(columns)
    padded: dict[int, NDArray[np.integer[Any]]] = {}  # by field, the bytes that it takes in each tuple
    for i, (column, values) in enumerate(zip(columns, chunk, strict=True)):
        lengths = _fill(column, values, rows[f"value_{i}"])
        if values.is_null is not None:
            lengths = np.where(values.is_null, -1, lengths)
        rows[f"length_{i}"] = lengths
        if np.any(lengths != _field(rows, f"value_{i}")[0].itemsize):
            padded[i] = np.maximum(lengths, 0)
    if not padded:
        return rows.tobytes()
    last = len(columns) - 1
    if list(padded) == [last] and rows.itemsize >= WIDE_BYTES:
        return _cut(rows, _field(rows, f"value_{last}")[1] + padded[last])
    keep = np.ones((len(rows), rows.itemsize), np.bool_)
    for i, lengths in padded.items():
        layout, offset = _field(rows, f"value_{i}")
        keep[:, offset : offset + layout.itemsize] = np.arange(layout.itemsize) < lengths[:, None]
    return rows.view(np.uint8).reshape(keep.shape)[keep].tobytes()


def _cut(rows: NDArray[np.void], lengths: NDArray[np.integer[Any]]) -> bytes:
    """Return the first bytes of each tuple, as many as it has."""
    whole = rows.view(np.uint8).data
    starts = np.arange(len(rows)) * rows.itemsize
    return b"".join([whole[start:end] for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)])


def _field(rows: NDArray[np.void], name: str) -> tuple[np.dtype[Any], int]:
    fields = rows.dtype.fields
    if fields is None:
        raise TypeError("rows must have a structured type")
    return fields[name][0], fields[name][1]


def _fill(column: Column, values: Values, target: NDArray[Any]) -> NDArray[np.integer[Any]]:
    """Write one column's values into its place in the tuples; returns the bytes each takes, (n_rows,)."""
    if column.element in BYTE_STRINGS:
        return _fill_byte_strings(column, values.data, target)
    data = np.asarray(values.data)
    check_fits(column, data)
    if column.shape:
        target["header"] = _array_header(column)
        target["elements"]["length"] = np.dtype(ELEMENTS[column.element][0]).itemsize
        target["elements"]["value"] = data.reshape(len(data), -1)
    else:
        target[...] = data
    n_bytes = target.dtype.itemsize
    return np.full(len(data), n_bytes, np.int32)


def _array_header(column: Column) -> list[int]:
    """Return rank, no nulls, element oid, then (size, lower bound 1) of each dimension."""
    bounds = [word for size in column.shape for word in (size, 1)]
    return [len(column.shape), 0, ELEMENTS[column.element][1], *bounds]


def check_fits(column: Column, data: NDArray[Any]) -> None:
    """Refuse whole numbers beyond the column's type, which numpy would wrap around in silence."""
    wire = np.dtype(ELEMENTS[column.element][0])
    if data.dtype.kind not in "iu" or wire.kind != "i" or np.can_cast(data.dtype, wire) or not data.size:
        return
    limits = np.iinfo(wire)
    if int(data.min()) < limits.min or int(data.max()) > limits.max:
        raise InvalidData(f"column {column.name!r} holds a number that does not fit into {column.element}")


def _fill_byte_strings(
    column: Column, data: NDArray[Any] | list[bytes], target: NDArray[Any]
) -> NDArray[np.integer[Any]]:
    """Lay byte strings left-aligned into (n_rows, width)."""
    width = target.shape[1]
    if isinstance(data, list):
        lengths = np.fromiter(map(len, data), np.int32, len(data))
        target[np.arange(width) < lengths[:, None]] = np.frombuffer(b"".join(data), np.uint8)
        has_zero = any(b"\0" in value for value in data)
    else:
        target[...] = np.ascontiguousarray(data).view(np.uint8).reshape(target.shape)
        lengths = np.full(len(data), width, np.int32)
        if data.dtype.kind == "S":
            lengths = np.char.str_len(data).astype(np.int32)
        has_zero = column.element in TEXTS and bool((target == 0).sum() != (width - lengths).sum())
    if column.element in TEXTS and has_zero:
        raise InvalidData(f"column {column.name!r} holds a zero byte, which PostgreSQL's text cannot")
    return lengths


def numeric_bytes(number: Decimal) -> bytes:
    """Return a finite numeric as the server takes it: counts, weight, sign, scale, then digits to the base 10,000."""
    sign, digits, exponent = number.as_tuple()
    scale = max(0, -int(exponent))
    text = "".join(map(str, digits)) + "0" * max(0, int(exponent))
    text = text.rjust(scale + 1, "0")
    whole, fraction = text[: len(text) - scale], text[len(text) - scale :]
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [int((whole + fraction)[i : i + 4]) for i in range(0, len(whole + fraction), 4)]
    weight = len(whole) // 4 - 1
    return struct.pack(f">hhHh{len(groups)}h", len(groups), weight, 0x4000 if sign else 0, scale, *groups)
