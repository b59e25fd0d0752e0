"""The rows of a source in a temporary table, and what they turn out to be: task, labels, shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from . import columns as columns_of
from . import row_keys
from .columns import Column, Columns
from .encoder import Field, LabelTarget, NumberTarget, Target, TensorField
from .errors import InvalidArgument, InvalidData
from .pack_request import PackRequest
from .packing_statistics import INTEGERS
from .session import Session
from .task import TaskKind

MAX_LABELS = 10_000
FEW_LABELS, MANY_LABELS, SHARE_OF_LABELS = 10, 30, 1 / 20
"""Whole numbers up to the first are labels, beyond the second numbers; between, if they are few for their rows."""
REALS = {"float4", "float8", "numeric"}
C_ORDERED = {"text", "varchar", "bpchar"}
NO_IMAGES = "Leave them out in a view: an image cannot be imputed."


class RowsSql(NamedTuple):
    """SQL of the rows of a source: their input values i0.., the target, what the hash of a row is made of, its key, and
    what names it for users, its key or the hash."""

    values: Sequence[str]
    target: str
    hashed: str
    key: str
    row_key: str

    @property
    def has_key(self) -> bool:
        """Whether a key names the rows."""
        return self.row_key == self.key

    def hashed_rows(self, request: PackRequest, further: Sequence[str], condition: str = "") -> str:
        """Return a query of (i0.., y, further.., key, h). y has its own type: labels keep their order, numbers their
        precision."""
        columns = ", ".join([*self.values, f"{self.target} AS y", *further, f'{self.key} COLLATE "C" AS key'])
        return (
            f"SELECT *, hash_record_extended(ROW({self.hashed}), {int(request.seed)}) AS h"
            f" FROM (SELECT {columns} FROM {request.source} {condition} OFFSET 0) AS source"
        )


def rows_sql(session: Session, request: PackRequest, columns: Columns, inputs: Sequence[Field]) -> RowsSql:
    """Return SQL of the rows that are to be packed."""
    values = [f"{columns_of.value_sql(field, columns[field.column].quoted)} AS i{k}" for k, field in enumerate(inputs)]
    hashed = ", ".join([columns_of.hash_sql(field, f"i{k}") for k, field in enumerate(inputs)] + ["y"])
    target = columns[request.target].quoted
    if request.task == "classification":
        target = label_sql(columns[request.target])
    names = row_keys.key_columns(session, request, columns)
    key = row_keys.key_sql(columns, names)
    row_key = key if names else f"{row_keys.hash_sql(request, columns, inputs, target)}::text"
    return RowsSql(values, target, hashed, key, row_key)


def copy_rows(session: Session, request: PackRequest, columns: Columns, rows: RowsSql) -> None:
    """Fill temporary table easeml_rows (i0.., y, s, key, h): input values, target, what splits it, its key, hash."""
    split = f"{_split_sql(request, columns)} AS s"
    session.execute(f"CREATE TEMPORARY TABLE easeml_rows ON COMMIT DROP AS {rows.hashed_rows(request, [split])}")


def label_sql(column: Column) -> str:
    """Return SQL of a label under its own type: 1.0 and 1.00 are one."""
    return f"trim_scale({column.quoted})" if column.type == "numeric" else column.quoted


def _split_sql(request: PackRequest, columns: Columns) -> str:
    """Return SQL of what splits a row: its time as it is, its group as text, the word that says the split."""
    if request.split_by is None:
        return "NULL::int"
    column = columns[request.split_by.column]
    if request.split_by.argument == "time_column":
        return column.quoted
    text = f'({columns_of.text_sql(column.type, column.quoted)}) COLLATE "C"'
    return f"lower(btrim({text}))" if request.split_by.argument == "split_column" else text


def drop_rows_without_target(session: Session, request: PackRequest) -> int:
    """Return how many rows have no target; refuse an empty source and one without any target."""
    counts = session.execute("SELECT count(*) AS n, count(y) AS n_known FROM pg_temp.easeml_rows")[0]
    if counts["n"] == 0:
        raise InvalidData(f"{request.source} has no rows", hint="Load rows into it first.")
    if counts["n_known"] == 0:
        raise InvalidData(
            f"the target {request.target!r} is NULL in all {counts['n']} rows",
            hint="Rows to train on have a target: fill it, or name another.",
        )
    n_skipped = int(counts["n"] - counts["n_known"])
    if n_skipped:
        session.execute("DELETE FROM pg_temp.easeml_rows WHERE y IS NULL")
        session.notice(f"{n_skipped} of {counts['n']} rows have a NULL target and are left out")
    return n_skipped


def task_of(request: PackRequest, column: Column) -> TaskKind:
    """Return the task: as asked for, else by the type of the target. Refused where the type does not allow it."""
    task = request.task or ("regression" if column.type in REALS else "classification")
    if task == "regression" and column.type not in columns_of.NUMBERS:
        raise InvalidArgument(
            f"task: column {request.target!r} has type {columns_of.shown_type(column.type)}, regression needs a number",
            hint="Leave the task out, or cast the column to a number in a view.",
        )
    if column.type not in columns_of.NUMBERS | {"bool"} and not column.is_text:
        raise InvalidArgument(
            f"target: column {request.target!r} has type {columns_of.shown_type(column.type)},"
            " which is neither a label nor a number",
            hint="Targets are texts, booleans, enums and numbers; cast it in a view.",
        )
    return task


def target_of(session: Session, request: PackRequest, column: Column) -> Target:
    """Decide the task and describe the target: its labels, or that it is a number."""
    if task_of(request, column) == "classification" and not _is_measured(session, request, column):
        return LabelTarget(request.target, column.type, tuple(_labels(session, request, column)))
    bad = session.execute(
        "SELECT count(*) AS n FROM pg_temp.easeml_rows WHERE y::float8 IN ('NaN', 'Infinity', '-Infinity')"
    )[0]["n"]
    if bad:
        raise InvalidData(
            f"the target {request.target!r} is NaN or infinite in {bad} rows", hint="Leave them out in a view."
        )
    if session.execute("SELECT min(y) = max(y) AS is_constant FROM pg_temp.easeml_rows")[0]["is_constant"]:
        raise InvalidData(
            f"the target {request.target!r} has the same value in every row", hint="There is nothing to predict."
        )
    return NumberTarget(request.target, column.type)


def is_left_open(request: PackRequest, column: Column) -> bool:
    """Say whether it is open if a target of whole numbers has labels or numbers."""
    return request.task is None and column.type in INTEGERS


def are_few(n_rows: int, n_distinct: int) -> bool:
    """Say whether whole numbers are so few for their rows that they are labels."""
    return n_distinct <= FEW_LABELS or (n_distinct <= MANY_LABELS and n_distinct <= n_rows * SHARE_OF_LABELS)


def _is_measured(session: Session, request: PackRequest, column: Column) -> bool:
    """Say whether whole numbers are too many to be labels, where the caller leaves it open."""
    if not is_left_open(request, column):
        return False
    found = session.execute("SELECT count(*) AS n, count(DISTINCT y) AS n_distinct FROM pg_temp.easeml_rows")[0]
    n, n_distinct = int(found["n"]), int(found["n_distinct"])
    if are_few(n, n_distinct):
        return False
    session.notice(
        f"the target {request.target!r} has {n_distinct} different whole numbers in {n} rows, so they are numbers to"
        " predict (regression); say task => 'classification' if they are labels"
    )
    return True


def labels_sql(column: Column, rows: str) -> str:
    """Return a query of the labels of rows with a target y in the order of their codes, and their ranks in that of the
    column."""
    collate = ' COLLATE "C"' if column.type in C_ORDERED else ""
    return (
        f"SELECT {columns_of.text_sql(column.type, 'y')} AS label, row_number() OVER (ORDER BY y) AS rank FROM {rows}"
        f" GROUP BY y ORDER BY y{collate} LIMIT {MAX_LABELS + 1}"
    )


def _labels(session: Session, request: PackRequest, column: Column) -> list[str]:
    labels = [row["label"] for row in session.execute(labels_sql(column, "pg_temp.easeml_rows"))]
    if len(labels) < 2:
        raise InvalidData(
            f"the target {request.target!r} has one class only, {labels[0]!r}",
            hint="There is nothing to tell apart.",
        )
    if len(labels) > MAX_LABELS:
        raise InvalidData(
            f"the target {request.target!r} has more than {MAX_LABELS} classes",
            hint="If it is a number to predict, say task => 'regression'.",
        )
    return labels


def with_shapes(session: Session, request: PackRequest, inputs: Sequence[Field]) -> list[Field]:
    """Return the fields with the one shape of every array column settled, or refuse."""
    n_tensors = sum(isinstance(field, TensorField) for field in inputs)
    if request.input_shape is not None and n_tensors != 1:
        raise InvalidArgument(f"input_shape: expected exactly one array or bytea among the inputs, got {n_tensors}")
    return [
        _with_shape(session, k, field, request.input_shape) if isinstance(field, TensorField) else field
        for k, field in enumerate(inputs)
    ]


def _with_shape(session: Session, k: int, field: TensorField, shape: tuple[int, ...] | None) -> TensorField:
    if field.is_array:
        return _shaped_array(session, k, field, shape)
    return _shaped_bytes(session, k, field, shape)


def _shaped_bytes(session: Session, k: int, field: TensorField, shape: tuple[int, ...] | None) -> TensorField:
    sizes = session.execute(
        f"SELECT octet_length(i{k}) AS size, count(*) AS n FROM pg_temp.easeml_rows GROUP BY 1 ORDER BY n DESC LIMIT 3"
    )
    found = [(row["size"], row["n"]) for row in sizes]
    if any(size is None for size, _ in found):
        raise InvalidData(f"input {field.column!r} is NULL in some rows", hint=NO_IMAGES)
    if len(found) > 1:
        raise InvalidData(
            f"input {field.column!r} holds values of different lengths",
            detail="; ".join(f"{size} bytes in {n} rows" for size, n in found),
        )
    if shape is None:
        raise InvalidArgument(
            f"input_shape: column {field.column!r} is bytea of {found[0][0]} bytes: say its shape",
            hint="For example input_shape => '{28,28}'.",
        )
    _check_size(field, shape, found[0][0])
    return replace(field, shape=shape)


def _shaped_array(session: Session, k: int, field: TensorField, shape: tuple[int, ...] | None) -> TensorField:
    own = _array_shape(session, k, field)
    wire = "i4" if field.type == "_bool" else field.dtype
    shaped = replace(field, shape=shape or own, wire=wire, wire_rank=len(own))
    _check_size(field, shaped.shape, math.prod(own))
    missing = session.execute(
        f"SELECT count(*) AS n FROM pg_temp.easeml_rows WHERE i{k} IS NULL OR num_nulls(VARIADIC i{k}) > 0"
    )
    return _without_nulls(session, k, shaped, own) if missing[0]["n"] else shaped


def _array_shape(session: Session, k: int, field: TensorField) -> tuple[int, ...]:
    """Return the shape that all arrays of a column have."""
    rows = session.execute(
        f"SELECT array_dims(i{k}) AS dims, count(*) AS n FROM pg_temp.easeml_rows WHERE i{k} IS NOT NULL "
        "GROUP BY 1 ORDER BY n DESC LIMIT 3"
    )
    found = [(row["dims"], row["n"]) for row in rows]
    if not found or any(dims is None for dims, _ in found):
        raise InvalidData(f"input {field.column!r} holds empty arrays or NULL only")
    if len(found) > 1:
        raise InvalidData(
            f"input {field.column!r} holds ragged arrays",
            detail="; ".join(f"{dims} in {n} rows" for dims, n in found),
            hint="Every array of a column must have one shape.",
        )
    bounds = [part.split(":") for part in found[0][0].strip("[]").split("][")]
    return tuple(int(high) - int(low) + 1 for low, high in bounds)


def _without_nulls(session: Session, k: int, field: TensorField, own: tuple[int, ...]) -> TensorField:
    """Turn NULL arrays and NULL elements into NaN, which is imputed and flagged later."""
    if len(field.shape) > 1 or len(own) > 1:
        raise InvalidData(f"input {field.column!r} has NULL values", hint=NO_IMAGES)
    session.execute(f"ALTER TABLE pg_temp.easeml_rows ALTER i{k} TYPE float8[] USING i{k}::float8[]")
    session.execute(
        f"UPDATE pg_temp.easeml_rows "
        f"SET i{k} = coalesce(array_replace(i{k}, NULL, 'NaN'), array_fill('NaN'::float8, ARRAY[{math.prod(own)}])) "
        f"WHERE i{k} IS NULL OR num_nulls(VARIADIC i{k}) > 0"
    )
    return replace(field, dtype="f8", wire="f8")


def _check_size(field: TensorField, shape: tuple[int, ...], size: int) -> None:
    wanted = math.prod(shape)
    if wanted != size:
        raise InvalidArgument(
            f"input_shape: {list(shape)} makes {wanted} values, but column {field.column!r} holds {size}",
            hint=f"Give sizes whose product is {size}.",
        )
