"""Columns of a relation: the field that each becomes, and the SQL that transfers it in binary.

Rows are packed as `record_send(ROW(...))`, one aggregate a block: every row of a field takes the same number of bytes,
so a whole block is decoded as one structured numpy array instead of value by value. Arrays travel as the server
keeps them (easeml.array_bytes): `array_send` calls a function for each element, which costs 30 times as much.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.encoder import Field, NumericField, TensorField
from easeml_plpy.columns.tokens import MOST_CHARACTERS
from easeml_plpy.server.errors import InvalidArgument, InvalidData, ShapeMismatch
from easeml_plpy.server.near_names import columns_hint
from easeml_plpy.server.session import Session, Statement, only_column
from easeml_plpy.server.value_types import Array

NUMBERS = {"int2", "int4", "int8", "float4", "float8", "numeric"}
TIMES = {"date", "timestamp", "timestamptz"}
TEXTS = {"text", "varchar", "bpchar", "name", "char"}
JSONS = {"json", "jsonb"}
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


SHOWN_TYPES = {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bool": "boolean",
    "bpchar": "char",
    "timestamptz": "timestamp with time zone",
}
"""Types as users write them, by the server's own names where those differ."""


def shown_type(sql_type: str) -> str:
    """Return a type as users write it: real[] for _float4."""
    is_array = sql_type.startswith("_")
    element = sql_type.removeprefix("_") if is_array else sql_type
    return SHOWN_TYPES.get(element, element) + ("[]" if is_array else "")


class Column(NamedTuple):
    """A column of a relation: its type, below any domain, with its schema unless it is one of PostgreSQL's own; `kind`
    is pg_type's typtype; `quoted` is its name in SQL."""

    name: str
    type: str
    kind: str
    quoted: str
    is_array: bool

    @property
    def is_text(self) -> bool:
        """Whether its values are labels or categories by nature."""
        return self.type in TEXTS | {"uuid"} or self.kind == "e"


NARROW = {"bool", "int2", "int4", "float4"}
MOST_INPUTS = 1_590
"""A table of the server has at most 1,600 columns, and packing adds some of its own."""
TRAINING_ROWS = "pg_temp.easeml_rows r JOIN pg_temp.easeml_order o ON o.row = r.ctid WHERE o.split = 'train'"

Columns = Mapping[str, Column]


class Source(NamedTuple):
    """An input while it is packed: its field, and SQL of its value in a row r of easeml_rows."""

    field: Field
    value: str


COLUMNS = Statement(
    """
WITH RECURSIVE typed AS (
    SELECT c.attnum, c.atttypid AS type FROM pg_catalog.pg_attribute c WHERE c.attrelid = $1 AND c.attnum > 0
    UNION ALL
    SELECT d.attnum, b.typbasetype FROM typed d JOIN pg_catalog.pg_type b ON b.oid = d.type AND b.typtype = 'd')
SELECT a.attname AS name, t.typtype AS kind, quote_ident(a.attname) AS quoted, t.typcategory = 'A' AS is_array,
    CASE n.nspname WHEN 'pg_catalog' THEN t.typname::text ELSE format('%I.%I', n.nspname, t.typname) END AS type
FROM pg_catalog.pg_attribute a
JOIN typed USING (attnum)
JOIN pg_catalog.pg_type t ON t.oid = typed.type AND t.typtype <> 'd'
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
""",
    ("oid",),
    Column,
)

PRIMARY_KEY: Statement[str] = Statement(
    """
SELECT a.attname AS column
FROM pg_catalog.pg_index i CROSS JOIN LATERAL generate_subscripts(i.indkey, 1) k
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k]
WHERE i.indrelid = $1 AND i.indisprimary ORDER BY k
""",
    ("oid",),
    only_column,
)


def read_columns(session: Session, relation: int) -> dict[str, Column]:
    """Return the relation's columns by name."""
    return {column.name: column for column in session.rows(COLUMNS, relation)}


def check_number(n_inputs: int) -> None:
    """Refuse more inputs than a row of the server can have. Raises InvalidArgument."""
    if n_inputs > MOST_INPUTS:
        raise InvalidArgument(
            f"inputs: expected at most {MOST_INPUTS} columns and keys, got {n_inputs}",
            hint="Put numbers of one kind into an array: it counts once, whatever its length.",
        )


def require(columns: Columns, names: Iterable[str | None], argument: str, source: str) -> None:
    """Refuse a column that the source does not have."""
    for name in names:
        if name not in columns:
            shown = "NULL" if name is None else repr(name)
            raise InvalidArgument(f"{argument}: {source} has no column {shown}", hint=columns_hint(name, [*columns]))


def input_field(column: Column) -> Field:
    """Return the field that a column becomes, before its values have been seen. Raises InvalidArgument."""
    name, sql_type = column.name, column.type
    if sql_type in NUMBERS or sql_type == "bool":
        return NumericField(column=name, type=sql_type)
    if sql_type in TIMES:
        return NumericField(column=name, type=sql_type, is_time=True)
    if sql_type in JSONS or (column.is_text and sql_type != "uuid"):
        return CategoricalField(column=name, type=sql_type)
    if sql_type in ARRAYS:
        return TensorField(column=name, type=sql_type, dtype=ARRAYS[sql_type])
    if sql_type == "bytea":
        return TensorField(column=name, type=sql_type, dtype="u1")
    if sql_type == "uuid":
        raise InvalidArgument(
            f"inputs: column {name!r} is a uuid: it names rows, and tells nothing about other rows",
            hint="Leave it out. If its values do come again and again, cast it to text in a view.",
        )
    raise InvalidArgument(
        f"inputs: column {name!r} has type {shown_type(sql_type)}, which cannot be an input",
        hint="Inputs are numbers, booleans, dates, text, enums, json, arrays of numbers and bytea; cast it in a view.",
    )


def text_sql(sql_type: str, value: str) -> str:
    """Return SQL for a label or category as text. The owner of an enum can define what a cast of it does, and the cast
    would run with the rights of the role that reads the column. So format makes the server write it, as it writes any
    enum.
    """
    if sql_type in TEXTS | NUMBERS | {"bool", "uuid"}:
        return f"{value}::text"
    return f"CASE WHEN {value} IS NOT NULL THEN format('%s', {value}) END"


def value_sql(field: Field, quoted: str) -> str:
    """Return SQL that brings a column into the type in which it is hashed and sent (NULL stays NULL)."""
    if field.type in JSONS:
        return f"{quoted}::jsonb"
    if isinstance(field, NumericField):
        if field.is_time:
            return f"extract(epoch FROM {quoted})::float8"
        return f"{quoted}::int::float8" if field.type == "bool" else f"{quoted}::float8"
    if isinstance(field, CategoricalField | TextField):
        return text_sql(field.type, quoted)
    cast = SEND_CASTS.get(field.type)
    return f"{quoted}::{cast}" if cast else quoted


def placed_sql(field: Field, quoted: str) -> str:
    """Return SQL of a column in the form of easeml_rows. Narrow numbers stay narrow: a row of the source fits into a
    page of the server, but might not if each number took 8 bytes.
    """
    return quoted if _is_narrow(field) else value_sql(field, quoted)


def read_sql(field: Field, placed: str) -> str:
    """Return SQL that turns a placed value into that of `value_sql`."""
    return value_sql(field, placed) if _is_narrow(field) else placed


def _is_narrow(field: Field) -> bool:
    return isinstance(field, NumericField) and field.type in NARROW


def member_sql(field: Field, document: str) -> str:
    """Return SQL of an input within a jsonb: NULL if a number is not a number, or a text is an object or array."""
    # The key is data: as hexadecimal it needs no quoting, whatever the settings of the session.
    key = f"convert_from(decode('{(field.key or '').encode().hex()}', 'hex'), 'UTF8')"
    member, text = f"({document} -> {key})", f"({document} ->> {key})"
    if isinstance(field, NumericField):
        is_true = f"WHEN 'boolean' THEN {text}::boolean::int::float8"
        return f"CASE jsonb_typeof{member} WHEN 'number' THEN {text}::float8 {is_true} END"
    return f"CASE WHEN jsonb_typeof{member} NOT IN ('object', 'array') THEN {text} END"


def is_array(field: Field) -> bool:
    """Return whether a field comes from an SQL array."""
    return isinstance(field, TensorField) and field.is_array


def hash_sql(field: Field, name: str, schema: str = "easeml") -> str:
    """Return SQL for what the shuffle hashes: of an array its bytes, since hashing elements is slow. `schema`: that of
    the server's extension."""
    return f"{schema}.array_bytes({name})" if is_array(field) else name


def send_sql(field: Field, name: str, dictionary: str, schema: str = "easeml") -> str:
    """Return SQL for what `record_send` gets: a value of fixed width that is never NULL."""
    if isinstance(field, NumericField):
        return f"coalesce({name}, 'NaN'::float8)"
    if isinstance(field, CategoricalField):
        n_categories = len(field.categories)
        missing = -1 if field.missing else n_categories
        return f"CASE WHEN {name} IS NULL THEN {missing} ELSE coalesce({dictionary}.code::int4 - 1, {n_categories}) END"
    return hash_sql(field, name, schema)


def wire_type(field: Field) -> np.dtype[np.void]:
    """Return the structured type of one field as `record_send` writes it: type oid, length, then the binary value."""
    head = [("oid", ">u4"), ("length", ">i4")]
    if not (isinstance(field, TensorField) and field.is_array):
        return np.dtype([*head, ("value", field.stored_type.newbyteorder(">"), field.shape)])
    return np.dtype([*head, *array_layout(field.wire, field.wire_rank, math.prod(field.shape))])


def array_layout(element: str, rank: int, n_elements: int) -> list[Any]:
    """Return the parts of an array as easeml.array_bytes returns it: ArrayType of PostgreSQL's array.h without its
    length word, in the byte order of the machine."""
    head = [("n_dimensions", "=i4"), ("nulls_offset", "=i4"), ("element", "=u4")]
    bounds = [("sizes", "=i4", (rank,)), ("lower_bounds", "=i4", (rank,))]
    return [*head, *bounds, ("elements", np.dtype(element), (n_elements,))]


def texts_sql(texts: Sequence[tuple[Field, str]], order: str) -> str:
    """Return SQL of columns of texts, one after another, as JSON: Python parses it faster than a text[].

    A free text counts as far as its first characters, so the rest does not travel.
    """
    values = [f"left({value}, {MOST_CHARACTERS})" if isinstance(field, TextField) else value for field, value in texts]
    arrays = " || ".join(f"array_agg({value}{order})" for value in values)
    return f"array_to_json({arrays})::text" if arrays else "NULL::text"


def text_columns(texts: str | None, n_columns: int, n_rows: int) -> list[list[str | None]]:
    """Undo `texts_sql`. Raises ShapeMismatch."""
    values: list[str | None] = [] if texts is None else json.loads(texts)
    if len(values) != n_columns * n_rows:
        raise ShapeMismatch(f"expected {n_columns} texts of each of {n_rows} rows, got {len(values)} in all")
    return [values[start : start + n_rows] for start in range(0, len(values), max(n_rows, 1))]


def row_type(fields: Sequence[Field], target: str) -> np.dtype[np.void]:
    """Return the structured type of a sent row: column count, inputs, and the target, a numpy type."""
    parts: list[Any] = [("n_columns", ">i4")]
    parts += [(f"input_{i}", wire_type(field)) for i, field in enumerate(fields)]
    return np.dtype([*parts, ("target", [("oid", ">u4"), ("length", ">i4"), ("value", target)])])


def decode_rows(fields: Sequence[Field], target: str, payload: bytes, n_rows: int) -> tuple[list[Array], Array]:
    """Decode n_rows sent rows into fields and targets of that numpy type. Raises InvalidData."""
    rows = structured(row_type(fields, target), payload, n_rows)
    return [_field_of(field, rows[f"input_{i}"]) for i, field in enumerate(fields)], rows["target"]["value"]


def structured(dtype: np.dtype[np.void], payload: bytes, n_rows: int) -> Array:
    """Return bytes as n_rows of a structured type. Raises InvalidData."""
    if len(payload) != n_rows * dtype.itemsize:
        raise misshapen(f"{n_rows} rows take {len(payload)} bytes, expected {dtype.itemsize} each.")
    return np.frombuffer(payload, dtype, n_rows)


def _field_of(field: Field, part: Array) -> Array:
    """Return one contiguous array of a field; no loop over rows."""
    if isinstance(field, TensorField) and field.is_array:
        return elements_of(field, part)
    return np.ascontiguousarray(part["value"].reshape(len(part), *field.shape), field.stored_type)


def elements_of(field: TensorField, arrays: Array) -> Array:
    """Return the elements of arrays (`array_layout`). Refuse arrays of another rank or with NULL elements that happen
    to take the same number of bytes. Raises InvalidData."""
    if (arrays["n_dimensions"] != field.wire_rank).any() or arrays["nulls_offset"].any():
        raise misshapen(f"Column {field.column!r} has arrays of another rank, or with NULL elements.")
    return np.ascontiguousarray(arrays["elements"].reshape(len(arrays), *field.shape), field.stored_type)


def misshapen(detail: str) -> InvalidData:
    """Return the error for rows that are not all of one shape."""
    hint = "Every array of a column must have one shape and no NULL elements."
    return InvalidData("the rows do not all have the declared shape", detail=detail, hint=hint)
