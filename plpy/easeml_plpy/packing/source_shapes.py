"""Shapes of the arrays and images of a source: one for each column, and NULL in vectors becomes NaN."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from easeml_plpy.columns.encoder import Field, TensorField
from easeml_plpy.packing.pack_request import PackRequest
from easeml_plpy.server.errors import InvalidArgument, InvalidData
from easeml_plpy.server.session import Session

NO_IMAGES = "Leave them out in a view: an image cannot be imputed."


def with_shapes(session: Session, request: PackRequest, inputs: Sequence[Field]) -> list[Field]:
    """Return the fields with the one shape of every array column settled, or refuse."""
    facts = read_shapes(session, inputs)
    shaped = shaped_fields(request, inputs, facts)
    fill_nulls(session, shaped, facts)
    return shaped


class ShapeFacts(NamedTuple):
    """The commonest sizes of a column of bytea, or dimensions of its arrays, as (what, rows); and how many rows have no
    array, or one with a NULL in it."""

    found: list[tuple[int | str | None, int]]
    n_missing: int


def read_shapes(session: Session, inputs: Sequence[Field]) -> dict[int, ShapeFacts]:
    """Return by number of the input what shapes the rows have."""
    tensors = {k: field for k, field in enumerate(inputs) if isinstance(field, TensorField)}
    return {k: _read_arrays(session, k) if field.is_array else _read_sizes(session, k) for k, field in tensors.items()}


def shaped_fields(request: PackRequest, inputs: Sequence[Field], facts: Mapping[int, ShapeFacts]) -> list[Field]:
    """Return the fields with their shapes. Raises InvalidArgument, InvalidData."""
    n_tensors = sum(isinstance(field, TensorField) for field in inputs)
    if request.input_shape is not None and n_tensors != 1:
        raise InvalidArgument(f"input_shape: expected exactly one array or bytea among the inputs, got {n_tensors}")
    fields = list(inputs)
    for k, field in enumerate(inputs):
        if isinstance(field, TensorField):
            shaped = _shaped_array if field.is_array else _shaped_bytes
            fields[k] = shaped(field, request.input_shape, facts[k])
    return fields


def _read_sizes(session: Session, k: int) -> ShapeFacts:
    sizes = session.execute(
        f"SELECT octet_length(i{k}) AS size, count(*) AS n FROM pg_temp.easeml_rows GROUP BY 1 ORDER BY n DESC LIMIT 3"
    )
    return ShapeFacts([(row["size"], int(row["n"])) for row in sizes], 0)


def _shaped_bytes(field: TensorField, shape: tuple[int, ...] | None, facts: ShapeFacts) -> TensorField:
    sizes = facts.found
    if any(size is None for size, _ in sizes):
        raise InvalidData(f"input {field.column!r} is NULL in some rows", hint=NO_IMAGES)
    if len(sizes) > 1:
        raise InvalidData(
            f"input {field.column!r} holds values of different lengths",
            detail="; ".join(f"{size} bytes in {n} rows" for size, n in sizes),
        )
    if shape is None:
        raise InvalidArgument(
            f"input_shape: column {field.column!r} is bytea of {sizes[0][0]} bytes: say its shape",
            hint="For example input_shape => '{28,28}'.",
        )
    _check_size(field, shape, int(sizes[0][0] or 0))
    return replace(field, shape=shape)


def _read_arrays(session: Session, k: int) -> ShapeFacts:
    rows = session.execute(
        f"SELECT array_dims(i{k}) AS dims, count(*) AS n FROM pg_temp.easeml_rows WHERE i{k} IS NOT NULL "
        "GROUP BY 1 ORDER BY n DESC LIMIT 3"
    )
    missing = session.execute(
        f"SELECT count(*) AS n FROM pg_temp.easeml_rows WHERE i{k} IS NULL OR num_nulls(VARIADIC i{k}) > 0"
    )
    return ShapeFacts([(row["dims"], int(row["n"])) for row in rows], int(missing[0]["n"]))


def _shaped_array(field: TensorField, shape: tuple[int, ...] | None, facts: ShapeFacts) -> TensorField:
    array_shape = _array_shape(field, facts.found)
    wire = "i4" if field.type == "_bool" else field.dtype
    shaped = replace(field, shape=shape or array_shape, wire=wire, wire_rank=len(array_shape))
    _check_size(field, shaped.shape, math.prod(array_shape))
    if not facts.n_missing:
        return shaped
    if len(shaped.shape) > 1 or len(array_shape) > 1:
        raise InvalidData(f"input {field.column!r} has NULL values", hint=NO_IMAGES)
    return replace(shaped, dtype="f8", wire="f8")


def _array_shape(field: TensorField, shapes: Sequence[tuple[int | str | None, int]]) -> tuple[int, ...]:
    """Return the shape that all arrays of a column have."""
    if not shapes or any(dims is None for dims, _ in shapes):
        raise InvalidData(f"input {field.column!r} holds empty arrays or NULL only")
    if len(shapes) > 1:
        raise InvalidData(
            f"input {field.column!r} holds ragged arrays",
            detail="; ".join(f"{dims} in {n} rows" for dims, n in shapes),
            hint="Every array of a column must have one shape.",
        )
    bounds = [part.split(":") for part in str(shapes[0][0]).strip("[]").split("][")]
    return tuple(int(high) - int(low) + 1 for low, high in bounds)


def fill_nulls(session: Session, shaped: Sequence[Field], facts: Mapping[int, ShapeFacts]) -> None:
    """Turn NULL arrays and NULL elements into NaN, which is imputed and flagged later."""
    for k, field in enumerate(shaped):
        if isinstance(field, TensorField) and facts[k].n_missing:
            _fill_nulls(session, k, math.prod(field.shape))


def _fill_nulls(session: Session, k: int, n_elements: int) -> None:
    session.execute(f"ALTER TABLE pg_temp.easeml_rows ALTER i{k} TYPE float8[] USING i{k}::float8[]")
    session.execute(
        f"UPDATE pg_temp.easeml_rows "
        f"SET i{k} = coalesce(array_replace(i{k}, NULL, 'NaN'), array_fill('NaN'::float8, ARRAY[{n_elements}])) "
        f"WHERE i{k} IS NULL OR num_nulls(VARIADIC i{k}) > 0"
    )


def _check_size(field: TensorField, shape: tuple[int, ...], size: int) -> None:
    n_values = math.prod(shape)
    if n_values != size:
        raise InvalidArgument(
            f"input_shape: {list(shape)} makes {n_values} values, but column {field.column!r} holds {size}",
            hint=f"Give sizes whose product is {size}.",
        )
