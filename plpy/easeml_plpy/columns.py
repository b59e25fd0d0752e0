"""Columns of a relation: which field each becomes, and the SQL that brings it over in binary.

Rows travel as `record_send(ROW(...))`, one aggregate a block: every row of a field takes the same number of bytes,
so a whole block is decoded as one structured numpy array instead of value by value. Arrays travel as the server
keeps them (easeml.array_bytes): `array_send` calls a function for each element, which costs 30 times as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .encoding import Fields, field_type
from .errors import InvalidArgument, InvalidData

NUMBERS = {"int2", "int4", "int8", "float4", "float8", "numeric"}
TIMES = {"date", "timestamp", "timestamptz"}
TEXTS = {"text", "varchar", "bpchar", "name", "uuid", "char"}
ARRAYS = {
    "_int2": "i2",
    "_int4": "i4",
    "_float4": "f4",
    "_float8": "f8",
    "_numeric": "f8",
    "_int8": "f8",
    "_bool": "i2",
}
SEND_CASTS = {"_numeric": "float8[]", "_int8": "float8[]", "_bool": "int4[]"}

COLUMNS = """
SELECT a.attname AS column, t.typname AS type, t.typtype AS class, quote_ident(a.attname) AS quoted
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type b ON b.oid = a.atttypid
JOIN pg_catalog.pg_type t ON t.oid = CASE WHEN b.typtype = 'd' THEN b.typbasetype ELSE b.oid END
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


def read_columns(plpy: Any, relation: int) -> dict[str, dict[str, Any]]:
    """Return the relation's columns by name: type, class and quoted name."""
    plan = plpy.prepare(COLUMNS, ["oid"])
    return {row["column"]: dict(row) for row in plpy.execute(plan, [relation])}


def require(columns: Mapping[str, Any], names: Sequence[str], argument: str, source: str) -> None:
    """Refuse a column that the source does not have."""
    for name in names:
        if name not in columns:
            raise InvalidArgument(f"{argument}: {source} has no column {name!r}", hint=f"It has: {', '.join(columns)}.")


def input_field(column: Mapping[str, Any]) -> dict[str, Any]:
    """Say which kind of field a column becomes, before its values have been seen."""
    name, kind = column["type"], column["class"]
    base = {"column": column["column"], "type": name}
    if name in NUMBERS or name == "bool":
        return {**base, "kind": "numeric"}
    if name in TIMES:
        return {**base, "kind": "numeric", "is_time": True}
    if name in TEXTS or kind == "e":
        return {**base, "kind": "categorical"}
    if name in ARRAYS:
        return {**base, "kind": "tensor", "dtype": ARRAYS[name]}
    if name == "bytea":
        return {**base, "kind": "tensor", "dtype": "u1"}
    raise InvalidArgument(
        f"inputs: column {column['column']!r} has type {name}, which cannot be an input",
        hint="Inputs are numbers, booleans, dates, text, enums, arrays of numbers and bytea; cast it in a view.",
    )


def value_sql(field: Mapping[str, Any], quoted: str) -> str:
    """SQL that brings a column into the type in which it is hashed and sent (NULL stays NULL)."""
    if field["kind"] == "numeric":
        if field.get("is_time"):
            return f"extract(epoch FROM {quoted})::float8"
        return f"{quoted}::int::float8" if field["type"] == "bool" else f"{quoted}::float8"
    if field["kind"] == "categorical":
        return f"{quoted}::text"
    if field["type"] == "_bool":
        return f"{quoted}::int4[]"
    cast = SEND_CASTS.get(field["type"])
    return f"{quoted}::{cast}" if cast else quoted


def is_array(field: Mapping[str, Any]) -> bool:
    """Whether a field comes from an SQL array."""
    return bool(field["kind"] == "tensor" and field["type"] != "bytea")


def hash_sql(field: Mapping[str, Any], name: str) -> str:
    """SQL for what stands for the value in the shuffle's hash: the bytes of arrays, since hashing elements is slow."""
    return f"easeml.array_bytes({name})" if is_array(field) else name


def send_sql(field: Mapping[str, Any], name: str, dictionary: str) -> str:
    """SQL for what `record_send` gets: a value of fixed width that is never NULL."""
    if field["kind"] == "numeric":
        return f"coalesce({name}, 'NaN'::float8)"
    if field["kind"] == "categorical":
        n_categories = len(field["categories"])
        missing = -1 if field["missing"] else n_categories
        return f"CASE WHEN {name} IS NULL THEN {missing} ELSE coalesce({dictionary}.code::int4 - 1, {n_categories}) END"
    return f"easeml.array_bytes({name})" if is_array(field) else name


def wire_type(field: Mapping[str, Any]) -> np.dtype[Any]:
    """Structured type of one field as `record_send` writes it: type oid, length, then the binary value."""
    dtype, shape = field_type(field)
    head = [("oid", ">u4"), ("length", ">i4")]
    if not is_array(field):
        return np.dtype([*head, ("value", dtype.newbyteorder(">"), shape)])
    # ArrayType of PostgreSQL's array.h without its length word, in the byte order of the machine.
    array_head = [("n_dimensions", "=i4"), ("nulls_offset", "=i4"), ("element", "=u4")]
    bounds = [("sizes", "=i4", (field["wire_rank"],)), ("lower_bounds", "=i4", (field["wire_rank"],))]
    n_values = int(np.prod(shape, dtype=np.int64))
    return np.dtype([*head, *array_head, *bounds, ("elements", np.dtype(field["wire"]), (n_values,))])


def row_type(fields: Sequence[Mapping[str, Any]], target: str | None) -> np.dtype[Any]:
    """Structured type of one sent row: the column count, the inputs, and the target (a numpy type) if there is one."""
    parts: list[Any] = [("n_columns", ">i4")]
    parts += [(f"input_{i}", wire_type(field)) for i, field in enumerate(fields)]
    if target is not None:
        parts.append(("target", [("oid", ">u4"), ("length", ">i4"), ("value", target)]))
    return np.dtype(parts)


def decode_rows(
    fields: Sequence[Mapping[str, Any]], target: str | None, payload: bytes, n_rows: int
) -> tuple[Fields, Any]:
    """Decode n_rows sent rows into fields and targets (None without a target); no loop over rows."""
    dtype = row_type(fields, target)
    if len(payload) != n_rows * dtype.itemsize:
        raise _misshapen(f"{n_rows} rows take {len(payload)} bytes, expected {dtype.itemsize} each.")
    rows = np.frombuffer(payload, dtype, n_rows)
    decoded: Fields = []
    for i, field in enumerate(fields):
        stored, shape = field_type(field)
        part = rows[f"input_{i}"]
        if is_array(field):
            _check_arrays(field, part)
        values = part["elements" if is_array(field) else "value"]
        decoded.append(np.ascontiguousarray(values.reshape(n_rows, *shape), stored))
    return decoded, None if target is None else rows["target"]["value"]


def _check_arrays(field: Mapping[str, Any], arrays: Any) -> None:
    """Refuse arrays of another rank or with NULL elements that happen to take the same number of bytes."""
    if (arrays["n_dimensions"] != field["wire_rank"]).any() or arrays["nulls_offset"].any():
        raise _misshapen(f"Column {field['column']!r} has arrays of another rank, or with NULL elements.")


def _misshapen(detail: str) -> InvalidData:
    hint = "Every array of a column must have one shape and no NULL elements."
    return InvalidData("the rows do not all have the declared shape", detail=detail, hint=hint)
