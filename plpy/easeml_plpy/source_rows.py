"""The rows of a source in a temporary table, and what they turn out to be: task, labels, shapes, categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import columns as columns_of
from .errors import InvalidArgument, InvalidData

MAX_CATEGORIES = 64
MAX_LABELS = 10_000
REALS = {"float4", "float8", "numeric"}

Json = dict[str, Any]


def copy_rows(plpy: Any, wanted: Json, columns: Json, inputs: Sequence[Json]) -> None:
    """Fill temporary table easeml_rows (i0.., y, h): input values, target, hash."""
    values = [
        f"{columns_of.value_sql(field, columns[field['column']]['quoted'])} AS i{k}" for k, field in enumerate(inputs)
    ]
    hashed = ", ".join([columns_of.hash_sql(field, f"i{k}") for k, field in enumerate(inputs)] + ["y"])
    target = columns[wanted["target"]]["quoted"]
    if wanted["task"] == "classification" and columns[wanted["target"]]["type"] == "numeric":
        target = f"trim_scale({target})"  # 1.0 and 1.00 are one label
    # y is copied under its own type: labels keep their order, numbers their precision.
    plpy.execute(
        "CREATE TEMPORARY TABLE easeml_rows ON COMMIT DROP AS "
        f"SELECT *, hash_record_extended(ROW({hashed}), {int(wanted['seed'])}) AS h "
        f"FROM (SELECT {', '.join(values)}, {target} AS y FROM {wanted['source']} OFFSET 0) AS source"
    )


def check_rows(plpy: Any, wanted: Json) -> int:
    """Return how many rows have no target; refuse an empty source and one without any target."""
    counts = plpy.execute("SELECT count(*) AS n, count(y) AS n_known FROM pg_temp.easeml_rows")[0]
    if counts["n"] == 0:
        raise InvalidData(f"{wanted['source']} has no rows")
    if counts["n_known"] == 0:
        raise InvalidData(f"the target {wanted['target']!r} is NULL in all {counts['n']} rows")
    n_skipped = int(counts["n"] - counts["n_known"])
    if n_skipped:
        plpy.execute("DELETE FROM pg_temp.easeml_rows WHERE y IS NULL")
        plpy.notice(f"{n_skipped} of {counts['n']} rows have a NULL target and are left out")
    return n_skipped


def task_of(wanted: Json, column: Json) -> str:
    """The task: as asked for, else by the type of the target. Refused where the type does not allow it."""
    kind = column["type"]
    task: str = wanted["task"] or ("regression" if kind in REALS else "classification")
    if task == "regression" and kind not in columns_of.NUMBERS:
        raise InvalidArgument(f"task: column {wanted['target']!r} has type {kind}, regression needs a number")
    if kind not in columns_of.NUMBERS | columns_of.TEXTS | {"bool"} and column["class"] != "e":
        raise InvalidArgument(
            f"target: column {wanted['target']!r} has type {kind}, which is neither a label nor a number"
        )
    return task


def target(plpy: Any, wanted: Json, column: Json) -> Json:
    """Decide the task and describe the target: its labels, or that it is a number."""
    kind, task = column["type"], task_of(wanted, column)
    base = {"column": wanted["target"], "type": kind, "task": task}
    if task == "regression":
        bad = plpy.execute(
            "SELECT count(*) AS n FROM pg_temp.easeml_rows WHERE y::float8 IN ('NaN', 'Infinity', '-Infinity')"
        )
        if bad[0]["n"]:
            raise InvalidData(f"the target {wanted['target']!r} is NaN or infinite in {bad[0]['n']} rows")
        spread = plpy.execute("SELECT min(y) = max(y) AS is_constant FROM pg_temp.easeml_rows")[0]
        if spread["is_constant"]:
            raise InvalidData(f"the target {wanted['target']!r} has the same value in every row")
        return base
    collate = ' COLLATE "C"' if kind in {"text", "varchar", "bpchar"} else ""
    rows = plpy.execute(
        f"SELECT y::text AS label FROM pg_temp.easeml_rows GROUP BY y ORDER BY y{collate} LIMIT {MAX_LABELS + 1}"
    )
    labels = [row["label"] for row in rows]
    if len(labels) < 2:
        raise InvalidData(
            f"the target {wanted['target']!r} has one class only, {labels[0]!r}",
            hint="There is nothing to tell apart.",
        )
    if len(labels) > MAX_LABELS:
        raise InvalidData(
            f"the target {wanted['target']!r} has more than {MAX_LABELS} classes",
            hint="If it is a number to predict, say task => 'regression'.",
        )
    return {**base, "labels": labels}


def resolve_tensors(plpy: Any, wanted: Json, inputs: Sequence[Json]) -> None:
    """Find the one shape of every array column, or refuse; settle dtype and shape of the fields."""
    tensors = [(k, field) for k, field in enumerate(inputs) if field["kind"] == "tensor"]
    shape = wanted["input_shape"]
    if shape is not None and len(tensors) != 1:
        raise InvalidArgument(f"input_shape: expected exactly one array or bytea among the inputs, got {len(tensors)}")
    if shape is not None and (not shape or any(size is None or size < 1 for size in shape)):
        raise InvalidArgument(f"input_shape: expected sizes of 1 or more, got {shape}")
    for k, field in tensors:
        if field["type"] == "bytea":
            _resolve_bytes(plpy, k, field, shape)
        else:
            _resolve_array(plpy, k, field, shape)


def _resolve_bytes(plpy: Any, k: int, field: Json, shape: list[int] | None) -> None:
    sizes = plpy.execute(
        f"SELECT octet_length(i{k}) AS size, count(*) AS n FROM pg_temp.easeml_rows GROUP BY 1 ORDER BY n DESC LIMIT 3"
    )
    found = [(row["size"], row["n"]) for row in sizes]
    if any(size is None for size, _ in found):
        raise InvalidData(
            f"input {field['column']!r} is NULL in some rows",
            hint="Leave them out in a view: an image cannot be imputed.",
        )
    if len(found) > 1:
        raise InvalidData(
            f"input {field['column']!r} holds values of different lengths",
            detail="; ".join(f"{size} bytes in {n} rows" for size, n in found),
        )
    if shape is None:
        raise InvalidArgument(
            f"input_shape: column {field['column']!r} is bytea of {found[0][0]} bytes: say its shape",
            hint="For example input_shape => '{28,28}'.",
        )
    _check_size(field, shape, found[0][0])
    field["shape"] = shape
    field["missing"] = []


def _resolve_array(plpy: Any, k: int, field: Json, shape: list[int] | None) -> None:
    rows = plpy.execute(
        f"SELECT array_dims(i{k}) AS dims, count(*) AS n FROM pg_temp.easeml_rows WHERE i{k} IS NOT NULL "
        "GROUP BY 1 ORDER BY n DESC LIMIT 3"
    )
    found = [(row["dims"], row["n"]) for row in rows]
    if not found or any(dims is None for dims, _ in found):
        raise InvalidData(f"input {field['column']!r} holds empty arrays or NULL only")
    if len(found) > 1:
        raise InvalidData(
            f"input {field['column']!r} holds ragged arrays",
            detail="; ".join(f"{dims} in {n} rows" for dims, n in found),
            hint="Every array of a column must have one shape.",
        )
    bounds = [part.split(":") for part in found[0][0].strip("[]").split("][")]
    own = [int(high) - int(low) + 1 for low, high in bounds]
    field["wire_rank"] = len(own)
    field["wire"] = "i4" if field["type"] == "_bool" else field["dtype"]
    field["shape"] = shape or own
    _check_size(field, field["shape"], int(np.prod(own)))
    missing = plpy.execute(
        f"SELECT count(*) AS n FROM pg_temp.easeml_rows WHERE i{k} IS NULL OR num_nulls(VARIADIC i{k}) > 0"
    )
    if missing[0]["n"]:
        _fill_array(plpy, k, field, own)


def _fill_array(plpy: Any, k: int, field: Json, own: list[int]) -> None:
    """Turn NULL arrays and NULL elements into NaN, which is imputed and flagged later."""
    if len(field["shape"]) > 1 or len(own) > 1:
        raise InvalidData(
            f"input {field['column']!r} has NULL values",
            hint="Leave them out in a view: an image cannot be imputed.",
        )
    size = int(np.prod(own))
    field.update(dtype="f8", wire="f8")
    plpy.execute(f"ALTER TABLE pg_temp.easeml_rows ALTER i{k} TYPE float8[] USING i{k}::float8[]")
    plpy.execute(
        f"UPDATE pg_temp.easeml_rows "
        f"SET i{k} = coalesce(array_replace(i{k}, NULL, 'NaN'), array_fill('NaN'::float8, ARRAY[{size}])) "
        f"WHERE i{k} IS NULL OR num_nulls(VARIADIC i{k}) > 0"
    )


def _check_size(field: Json, shape: list[int], size: int) -> None:
    wanted = int(np.prod(shape, dtype=np.int64))
    if wanted != size:
        raise InvalidArgument(
            f"input_shape: {shape} makes {wanted} values, but column {field['column']!r} holds {size}"
        )


def resolve_categories(plpy: Any, inputs: Sequence[Json]) -> None:
    """List the commonest values of each categorical column among the training rows."""
    for k, field in enumerate(inputs):
        if field["kind"] != "categorical":
            continue
        rows = plpy.execute(
            f"SELECT r.i{k} AS value, count(*) AS n "
            "FROM pg_temp.easeml_rows r JOIN pg_temp.easeml_order o ON o.row = r.ctid "
            f"WHERE o.split = 'train' GROUP BY 1 ORDER BY n DESC, r.i{k} COLLATE \"C\" LIMIT {MAX_CATEGORIES + 1}"
        )
        values = [row["value"] for row in rows]
        field["missing"] = [0] if None in values else []
        field["categories"] = [value for value in values if value is not None][:MAX_CATEGORIES]
