"""Packing a relation into the blocks of a data set: shuffle once, split, encode, write. All inside the server.

1. The inputs and the target are copied to a temporary table, with a hash of each row under the seed.
2. Rows are ordered by that hash (identical rows by a count of their copies, so that they spread too), split into
   training, validation and test rows evenly over the labels, and dealt to partitions in turn.
3. Each block is one aggregate of binary rows, decoded by numpy at once and stored as contiguous arrays, while the
   statistics of the training rows stream by.

Everything happens in the caller's transaction and with the caller's rights: an error leaves nothing behind.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import columns as columns_of
from .encoding import Moments, encoded_shape, fields_to_bytes, row_bytes
from .errors import InvalidArgument, InvalidData
from .session import entry_point, from_json, query

MAX_CATEGORIES = 64
MAX_LABELS = 10_000
TARGET_BLOCK_BYTES = 2 << 20
SPLITS = ("train", "validation", "test")

Json = dict[str, Any]


@entry_point
def pack_dataset(plpy: Any, GD: Json, request: str) -> str:  # noqa: N803
    """Pack the relation that the request names; return {"dataset_id": ...} as JSON."""
    started = time.monotonic()  # a duration for the record, no decision hangs on it
    wanted = from_json(request)
    columns = columns_of.read_columns(plpy, wanted["relation"])
    _check_columns(wanted, columns)
    inputs = [columns_of.input_field(columns[name]) for name in wanted["inputs"]]
    plpy.execute("SELECT set_config('work_mem', '256MB', true)")
    _copy_rows(plpy, wanted, columns, inputs)
    n_skipped = _check_rows(plpy, wanted)
    target = _target(plpy, wanted, columns[wanted["target"]])
    _resolve_tensors(plpy, wanted, inputs)
    _order_rows(plpy, wanted, target)
    _check_splits(plpy, wanted)
    _resolve_categories(plpy, inputs)
    dataset_id = _insert_dataset(plpy, wanted, inputs, target, n_skipped)
    statistics = _write_blocks(plpy, GD, wanted, inputs, target, dataset_id)
    _finish_encoder(plpy, dataset_id, inputs, target, statistics, time.monotonic() - started)
    for table in ("easeml_rows", "easeml_order"):
        plpy.execute(f"DROP TABLE pg_temp.{table}")
    return json.dumps({"dataset_id": dataset_id})


def _check_columns(wanted: Json, columns: Json) -> None:
    if not wanted["inputs"]:
        raise InvalidArgument(
            "inputs: expected at least one column", hint=f"{wanted['source']} has: {', '.join(columns)}."
        )
    if wanted["target"] is None:
        raise InvalidArgument("target: expected a column, got NULL")
    columns_of.require(columns, wanted["inputs"], "inputs", wanted["source"])
    columns_of.require(columns, [wanted["target"]], "target", wanted["source"])
    if len(set(wanted["inputs"])) < len(wanted["inputs"]):
        raise InvalidArgument("inputs: a column is named twice")
    if wanted["target"] in wanted["inputs"]:
        raise InvalidArgument(
            f"target: column {wanted['target']!r} is among the inputs, so there is nothing to learn"
        )


def _copy_rows(plpy: Any, wanted: Json, columns: Json, inputs: Sequence[Json]) -> None:
    """Fill temporary table easeml_rows (i0.., y, h): input values, target, hash."""
    values = [
        f"{columns_of.value_sql(field, columns[field['column']]['quoted'])} AS i{k}"
        for k, field in enumerate(inputs)
    ]
    hashed = ", ".join([columns_of.hash_sql(field, f"i{k}") for k, field in enumerate(inputs)] + ["y"])
    target = columns[wanted["target"]]["quoted"]
    # y is copied under its own type: labels keep their order, numbers their precision.
    plpy.execute(
        f"CREATE TEMPORARY TABLE easeml_rows ON COMMIT DROP AS SELECT *, hash_record_extended(ROW({hashed}), {int(wanted['seed'])}) AS h "
        f"FROM (SELECT {', '.join(values)}, {target} AS y FROM {wanted['source']} OFFSET 0) AS source"
    )


def _check_rows(plpy: Any, wanted: Json) -> int:
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


def _target(plpy: Any, wanted: Json, column: Json) -> Json:
    """Decide the task and describe the target: its labels, or that it is a number."""
    kind = column["type"]
    task = wanted["task"] or ("regression" if kind in {"float4", "float8", "numeric"} else "classification")
    base = {"column": wanted["target"], "type": kind, "task": task}
    if task == "regression":
        if kind not in columns_of.NUMBERS:
            raise InvalidArgument(
                f"task: column {wanted['target']!r} has type {kind}, regression needs a number"
            )
        bad = plpy.execute(
            "SELECT count(*) AS n FROM pg_temp.easeml_rows WHERE y::float8 IN ('NaN', 'Infinity', '-Infinity')"
        )
        if bad[0]["n"]:
            raise InvalidData(f"the target {wanted['target']!r} is NaN or infinite in {bad[0]['n']} rows")
        spread = plpy.execute("SELECT min(y) = max(y) AS is_constant FROM pg_temp.easeml_rows")[0]
        if spread["is_constant"]:
            raise InvalidData(f"the target {wanted['target']!r} has the same value in every row")
        return base
    if kind not in columns_of.NUMBERS | columns_of.TEXTS | {"bool"} and column["class"] != "e":
        raise InvalidArgument(
            f"target: column {wanted['target']!r} has type {kind}, which is neither a label nor a number"
        )
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


def _resolve_tensors(plpy: Any, wanted: Json, inputs: Sequence[Json]) -> None:
    """Find the one shape of every array column, or refuse; settle dtype and shape of the fields."""
    tensors = [(k, field) for k, field in enumerate(inputs) if field["kind"] == "tensor"]
    shape = wanted["input_shape"]
    if shape is not None and len(tensors) != 1:
        raise InvalidArgument(
            f"input_shape: expected exactly one array or bytea among the inputs, got {len(tensors)}"
        )
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
            f"input_shape: column {field['column']!r} is bytea of {found[0][0]} bytes: say its shape, for example '{{28,28}}'"
        )
    _check_size(field, shape, found[0][0])
    field["shape"] = shape
    field["missing"] = []


def _resolve_array(plpy: Any, k: int, field: Json, shape: list[int] | None) -> None:
    rows = plpy.execute(
        f"SELECT array_dims(i{k}) AS dims, count(*) AS n FROM pg_temp.easeml_rows WHERE i{k} IS NOT NULL GROUP BY 1 ORDER BY n DESC LIMIT 3"
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
    field["wire"] = ">" + {"_bool": "i4"}.get(field["type"], field["dtype"])
    field["shape"] = shape or own
    _check_size(field, field["shape"], int(np.prod(own)))
    nulls = plpy.execute(
        f"SELECT count(*) FILTER (WHERE i{k} IS NULL) AS n, count(*) FILTER (WHERE array_position(i{k}, NULL) IS NOT NULL) AS n_inner "
        f"FROM (SELECT {_flat(field, f'i{k}')} AS i{k} FROM pg_temp.easeml_rows) AS flat"
    )[0]
    if nulls["n"] or nulls["n_inner"]:
        _fill_array(plpy, k, field, own)


def _flat(field: Json, name: str) -> str:
    """SQL for a one-dimensional form of an array: array_position refuses others."""
    if field["wire_rank"] == 1:
        return name
    return f"CASE WHEN {name} IS NOT NULL THEN ARRAY(SELECT unnest({name})) END"


def _fill_array(plpy: Any, k: int, field: Json, own: list[int]) -> None:
    """Turn NULL arrays and NULL elements into NaN, which is imputed and flagged later."""
    if len(field["shape"]) > 1:
        raise InvalidData(
            f"input {field['column']!r} has NULL values",
            hint="Leave them out in a view: an image cannot be imputed.",
        )
    size = int(np.prod(own))
    field.update(dtype="f8", wire=">f8", wire_rank=1, type="_float8")
    plpy.execute(f"ALTER TABLE pg_temp.easeml_rows ALTER i{k} TYPE float8[] USING i{k}::float8[]")
    plpy.execute(
        f"UPDATE pg_temp.easeml_rows SET i{k} = coalesce(array_replace(i{k}, NULL, 'NaN'), array_fill('NaN'::float8, ARRAY[{size}])) "
        f"WHERE i{k} IS NULL OR array_position(i{k}, NULL) IS NOT NULL"
    )


def _check_size(field: Json, shape: list[int], size: int) -> None:
    if int(np.prod(shape, dtype=np.int64)) != size:
        raise InvalidArgument(
            f"input_shape: {shape} makes {int(np.prod(shape, dtype=np.int64))} values, but column {field['column']!r} holds {size}"
        )


def _order_rows(plpy: Any, wanted: Json, target: Json) -> None:
    """Fill temporary table easeml_order (row, split, part, block position) from hashes and labels alone."""
    label = "y" if target["task"] == "classification" else "true"
    keep_one = "place = 1" if target["task"] == "classification" else "false"
    validation = wanted["validation_fraction"] / (1.0 - wanted["test_fraction"])
    # Every 1/f-th row in the order of (label, hash) goes to a split: exact shares overall, even shares of each label.
    # The first row of each label always trains, so that no class is unknown to the trials.
    plpy.execute(f"""
        CREATE TEMPORARY TABLE easeml_order ON COMMIT DROP AS
        WITH keyed AS (
            SELECT ctid AS row, {label} AS label, hash_record_extended(ROW(h, row_number() OVER (PARTITION BY h ORDER BY ctid)), {int(wanted["seed"])}) AS k
            FROM pg_temp.easeml_rows
        ), ranked AS (
            SELECT row, label, k, row_number() OVER (PARTITION BY label ORDER BY k) AS place, row_number() OVER (ORDER BY label, k) AS n FROM keyed
        ), tested AS (
            SELECT *, NOT {keep_one} AND floor(n * {wanted["test_fraction"]!r}::float8) > floor((n - 1) * {wanted["test_fraction"]!r}::float8) AS is_test FROM ranked
        ), rest AS (
            SELECT *, row_number() OVER (PARTITION BY is_test ORDER BY label, k) AS m FROM tested
        ), divided AS (
            SELECT row, k, CASE WHEN is_test THEN 'test'
                WHEN NOT {keep_one} AND floor(m * {validation!r}::float8) > floor((m - 1) * {validation!r}::float8) THEN 'validation'
                ELSE 'train' END AS split FROM rest
        )
        SELECT row, split, ((row_number() OVER split_order - 1) % {int(wanted["n_partitions"])})::int AS part,
            ((row_number() OVER split_order - 1) / {int(wanted["n_partitions"])})::int AS position
        FROM divided WINDOW split_order AS (PARTITION BY split ORDER BY k)""")


def _check_splits(plpy: Any, wanted: Json) -> None:
    rows = plpy.execute("SELECT split, count(*) AS n FROM pg_temp.easeml_order GROUP BY split")
    counts = {row["split"]: int(row["n"]) for row in rows}
    total = sum(counts.values())
    if counts.get("train", 0) < wanted["n_partitions"]:
        raise InvalidData(
            f"{total} rows are too few for {wanted['n_partitions']} partitions: {counts.get('train', 0)} are left to train on",
            hint="Ask for fewer partitions, or smaller validation and test fractions.",
        )
    for split in SPLITS[1:]:
        if not counts.get(split):
            raise InvalidData(
                f"{split}_fraction: {wanted[f'{split}_fraction']} of {total} rows leaves no {split} row"
            )


def _resolve_categories(plpy: Any, inputs: Sequence[Json]) -> None:
    """List the commonest values of each categorical column among the training rows."""
    for k, field in enumerate(inputs):
        if field["kind"] != "categorical":
            continue
        rows = plpy.execute(
            f"SELECT r.i{k} AS value, count(*) AS n FROM pg_temp.easeml_rows r JOIN pg_temp.easeml_order o ON o.row = r.ctid "
            f"WHERE o.split = 'train' GROUP BY 1 ORDER BY n DESC, r.i{k} COLLATE \"C\" LIMIT {MAX_CATEGORIES + 1}"
        )
        values = [row["value"] for row in rows]
        field["missing"] = [0] if None in values else []
        field["categories"] = [value for value in values if value is not None][:MAX_CATEGORIES]


def _insert_dataset(plpy: Any, wanted: Json, inputs: Sequence[Json], target: Json, n_skipped: int) -> int:
    """Insert the data set's row, its encoder still without statistics."""
    for field in inputs:
        field.setdefault("missing", [])
    block_rows = wanted["block_rows"] or int(
        np.clip(TARGET_BLOCK_BYTES // max(row_bytes({"inputs": inputs}), 1), 64, 8192)
    )
    wanted["block_rows"] = block_rows
    plan = plpy.prepare(
        "INSERT INTO easeml.datasets (dataset_name, version, source, input_columns, target_column, task, input_shape, n_outputs, n_partitions,"
        " validation_fraction, test_fraction, seed, block_rows, options, encoder, n_skipped_rows)"
        " VALUES ($1, $2, $3, $4, $5, $6, '{1}', $7, $8, $9, $10, $11, $12, $13, '{}', $14) RETURNING dataset_id",
        [
            "text",
            "int4",
            "text",
            "text[]",
            "text",
            "text",
            "int4",
            "int4",
            "float8",
            "float8",
            "int8",
            "int4",
            "jsonb",
            "int8",
        ],
    )
    options = {key: wanted[key] for key in ("task", "input_shape", "block_rows")}
    row = plpy.execute(plan, [
        wanted["name"], wanted["version"], wanted["source"], wanted["inputs"], wanted["target"], target["task"],
        len(target.get("labels", [None])), wanted["n_partitions"], wanted["validation_fraction"], wanted["test_fraction"],
        wanted["seed"], block_rows, json.dumps(options), n_skipped,
    ])  # fmt: skip
    return int(row[0]["dataset_id"])


@dataclass
class _Statistics:
    """What streams by while blocks are written: moments of the training rows, sizes of the partitions."""

    inputs: list[Moments | None]
    target: Moments
    n_rows: dict[tuple[str, int], int] = field(default_factory=dict)
    n_bytes: dict[int, int] = field(default_factory=dict)


def _block_query(
    wanted: Json, inputs: Sequence[Json], target: Json
) -> tuple[str, list[str], list[list[str]]]:
    """SQL that yields one row a block (split, part, block, n, payload), and its dictionaries as text[] parameters."""
    joins, types, values = [], [], []

    def dictionary(entries: list[str], expression: str) -> str:
        values.append(entries)
        types.append("text[]")
        alias = f"d{len(values)}"
        joins.append(
            f"LEFT JOIN unnest(${len(values)}) WITH ORDINALITY AS {alias}(entry, code) ON {alias}.entry = {expression}"
        )
        return alias

    sent = [
        columns_of.send_sql(
            field,
            f"r.i{k}",
            dictionary(field["categories"], f"r.i{k}") if field["kind"] == "categorical" else "",
        )
        for k, field in enumerate(inputs)
    ]
    if target["task"] == "classification":
        sent.append(f"({dictionary(target['labels'], 'r.y::text')}.code - 1)::int4")
    else:
        sent.append("r.y::float8")
    sql = (
        f"SELECT o.split, o.part, o.position / {int(wanted['block_rows'])} AS block, count(*) AS n, "
        f"string_agg(record_send(ROW({', '.join(sent)})), ''::bytea ORDER BY o.position) AS payload "
        f"FROM pg_temp.easeml_order o JOIN pg_temp.easeml_rows r ON r.ctid = o.row {' '.join(joins)} GROUP BY 1, 2, 3"
    )
    return sql, types, values


def _write_blocks(
    plpy: Any, GD: Json, wanted: Json, inputs: Sequence[Json], target: Json, dataset_id: int
) -> _Statistics:  # noqa: N803
    sql, types, values = _block_query(wanted, inputs, target)
    is_label = target["task"] == "classification"
    statistics = _Statistics([_moments(field) for field in inputs], Moments(is_elementwise=True))
    for row in plpy.cursor(plpy.prepare(sql, types), values):
        fields, targets = columns_of.decode_rows(
            inputs, ">i4" if is_label else ">f8", row["payload"], int(row["n"])
        )
        if row["split"] == "train":
            _observe(statistics, inputs, fields, targets)
        packed = fields_to_bytes(fields)
        codes = targets.astype("<i4" if is_label else "<f8").tobytes()
        query(
            plpy, GD, "INSERT INTO easeml.blocks (dataset_id, split, partition_number, block_number, n_rows, inputs, targets) VALUES ($1, $2, $3, $4, $5, $6, $7)",
            ["int8", "text", "int4", "int4", "int4", "bytea", "bytea"],
            [dataset_id, row["split"], row["part"], row["block"], row["n"], packed, codes],
        )  # fmt: skip
        key = (row["split"], row["part"])
        statistics.n_rows[key] = statistics.n_rows.get(key, 0) + int(row["n"])
        statistics.n_bytes[row["part"]] = statistics.n_bytes.get(row["part"], 0) + len(packed) + len(codes)
    return statistics


def _moments(field: Json) -> Moments | None:
    if field["kind"] == "categorical":
        return None
    return Moments(is_elementwise=field["kind"] == "tensor" and len(field["shape"]) == 1)


def _observe(statistics: _Statistics, inputs: Sequence[Json], fields: list[Any], targets: Any) -> None:
    for moments, description, values in zip(statistics.inputs, inputs, fields, strict=True):
        if moments is None:
            continue
        if values.dtype.kind == "f" and np.isinf(values).any():
            raise InvalidData(
                f"input {description['column']!r} has infinite values", hint="Turn them into NULL in a view."
            )
        moments.add(values)
    statistics.target.add(targets.astype(np.float64).reshape(-1, 1))


def _finish_encoder(
    plpy: Any, dataset_id: int, inputs: Sequence[Json], target: Json, statistics: _Statistics, seconds: float
) -> None:
    """Write the partitions' sizes and the encoder with its statistics."""
    for description, moments in zip(inputs, statistics.inputs, strict=True):
        if moments is not None:
            description.update(moments.statistics())
    if target["task"] == "regression":
        target.update(
            {key: value[0] for key, value in statistics.target.statistics().items() if key != "missing"}
        )
    shape = encoded_shape(inputs)
    partitions = plpy.prepare(
        "INSERT INTO easeml.partitions (dataset_id, partition_number, n_train_rows, n_validation_rows, n_test_rows, n_bytes) VALUES ($1, $2, $3, $4, $5, $6)",
        ["int8", "int4", "int8", "int8", "int8", "int8"],
    )
    for part, n_bytes in sorted(statistics.n_bytes.items()):
        plpy.execute(
            partitions,
            [dataset_id, part, *(statistics.n_rows.get((split, part), 0) for split in SPLITS), n_bytes],
        )
    encoder = {"inputs": list(inputs), "input_shape": shape, "target": target}
    plan = plpy.prepare(
        "UPDATE easeml.datasets SET encoder = $2, input_shape = $3, packing_seconds = $4 WHERE dataset_id = $1",
        ["int8", "jsonb", "int4[]", "float8"],
    )
    plpy.execute(plan, [dataset_id, json.dumps(encoder), shape, seconds])
