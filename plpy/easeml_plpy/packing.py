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
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import columns as columns_of
from . import source_rows, splitting
from .encoding import Moments, encoded_shape, fields_to_bytes, row_bytes
from .errors import InvalidArgument, InvalidData
from .session import answering, from_json, query

TARGET_BLOCK_BYTES = 2 << 20

INSERT_DATASET = """
INSERT INTO easeml.datasets (dataset_name, version, source, input_columns, target_column, task, input_shape, n_outputs,
    n_partitions, validation_fraction, test_fraction, seed, block_rows, options, encoder, n_skipped_rows)
SELECT d.name, d.version, d.source, d.inputs, d.target, $2, '{1}', $3,
    d.n_partitions, d.validation_fraction, d.test_fraction, d.seed, d.block_rows, $4, '{}', $5
FROM jsonb_to_record($1) AS d(name text, version int, source text, inputs text[], target text,
    n_partitions int, validation_fraction float8, test_fraction float8, seed bigint, block_rows int)
RETURNING dataset_id
"""

INSERT_BLOCK = """
INSERT INTO easeml.blocks (dataset_id, split, partition_number, block_number, n_rows, inputs, targets)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""

INSERT_PARTITION = """
INSERT INTO easeml.partitions
    (dataset_id, partition_number, n_train_rows, n_validation_rows, n_test_rows, n_bytes, checksum)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""

FINISH_DATASET = "UPDATE easeml.datasets SET encoder = $2, input_shape = $3, packing_seconds = $4 WHERE dataset_id = $1"

Json = dict[str, Any]


@answering
def pack_dataset(plpy: Any, GD: Json, request: str) -> int:
    """Pack the relation that the request names; return the number of the dataset."""
    started = time.monotonic()  # a duration for the record, no decision hangs on it
    wanted = from_json(request)
    columns = columns_of.read_columns(plpy, wanted["relation"])
    _check_columns(wanted, columns)
    inputs = [columns_of.input_field(columns[name]) for name in wanted["inputs"]]
    # Each statement runs once: compiling it takes longer than it saves.
    plpy.execute("SELECT set_config('work_mem', '256MB', true), set_config('jit', 'off', true)")
    source_rows.copy_rows(plpy, wanted, columns, inputs)
    n_skipped = source_rows.check_rows(plpy, wanted)
    target = source_rows.target(plpy, wanted, columns[wanted["target"]])
    source_rows.resolve_tensors(plpy, wanted, inputs)
    splitting.order_rows(plpy, wanted, target)
    splitting.check_splits(plpy, wanted)
    source_rows.resolve_categories(plpy, inputs)
    dataset_id = _insert_dataset(plpy, wanted, inputs, target, n_skipped)
    statistics = _write_blocks(plpy, GD, wanted, inputs, target, dataset_id)
    _finish_encoder(plpy, dataset_id, inputs, target, statistics, time.monotonic() - started)
    for table in ("easeml_rows", "easeml_order"):
        plpy.execute(f"DROP TABLE pg_temp.{table}")
    return dataset_id


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
        raise InvalidArgument(f"target: column {wanted['target']!r} is among the inputs, so there is nothing to learn")
    source_rows.task_of(wanted, columns[wanted["target"]])


def _insert_dataset(plpy: Any, wanted: Json, inputs: Sequence[Json], target: Json, n_skipped: int) -> int:
    """Insert the data set's row, its encoder still without statistics; return its number."""
    if not wanted["block_rows"]:
        n_bytes = max(row_bytes({"inputs": inputs}), 1)
        wanted["block_rows"] = int(np.clip(TARGET_BLOCK_BYTES // n_bytes, 64, 8192))
    options = {key: wanted[key] for key in ("task", "input_shape", "block_rows")}
    plan = plpy.prepare(INSERT_DATASET, ["jsonb", "text", "int4", "jsonb", "int8"])
    n_outputs = len(target["labels"]) if target["task"] == "classification" else 1
    row = plpy.execute(plan, [json.dumps(wanted), target["task"], n_outputs, json.dumps(options), n_skipped])
    return int(row[0]["dataset_id"])


@dataclass
class _Statistics:
    """What streams by while blocks are written: moments of the training rows, sizes and checksums of the partitions."""

    inputs: list[Moments | None]
    target: Moments
    n_rows: Counter[tuple[str, int]] = field(default_factory=Counter)
    n_bytes: Counter[int] = field(default_factory=Counter)
    checksums: Counter[int] = field(default_factory=Counter)

    def count(self, split: str, part: int, n_rows: int, packed: Sequence[bytes]) -> None:
        """Count a block: its inputs and targets, in the order of the blocks."""
        self.n_rows[split, part] += n_rows
        self.n_bytes[part] += sum(map(len, packed))
        if split == "train":
            self.checksums[part] = checksum(packed, self.checksums[part])


def _block_query(wanted: Json, inputs: Sequence[Json], target: Json) -> tuple[str, list[str], list[list[str]]]:
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

    sent = []
    for k, column in enumerate(inputs):
        alias = dictionary(column["categories"], f"r.i{k}") if column["kind"] == "categorical" else ""
        sent.append(columns_of.send_sql(column, f"r.i{k}", alias))
    if target["task"] == "classification":
        sent.append(f"({dictionary(target['labels'], 'r.y::text')}.code - 1)::int4")
    else:
        sent.append("r.y::float8")
    sql = (
        f"SELECT o.split, o.part, o.position / {int(wanted['block_rows'])} AS block, count(*) AS n, "
        f"string_agg(record_send(ROW({', '.join(sent)})), ''::bytea ORDER BY o.position) AS payload "
        f"FROM pg_temp.easeml_order o JOIN pg_temp.easeml_rows r ON r.ctid = o.row {' '.join(joins)} "
        "GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    )
    return sql, types, values


def _write_blocks(
    plpy: Any, GD: Json, wanted: Json, inputs: Sequence[Json], target: Json, dataset_id: int
) -> _Statistics:
    """Decode, observe and store the blocks one after another; memory is bounded by a few of them."""
    sql, types, values = _block_query(wanted, inputs, target)
    wire, stored = (">i4", "<i4") if target["task"] == "classification" else (">f8", "<f8")
    statistics = _Statistics([_moments(column) for column in inputs], Moments(is_elementwise=True))
    for row in _each(plpy.cursor(plpy.prepare(sql, types), values)):
        fields, targets = columns_of.decode_rows(inputs, wire, row["payload"], row["n"])
        _check_values(inputs, fields)
        if row["split"] == "train":
            _observe(statistics, fields, targets)
        packed = [fields_to_bytes(fields), targets.astype(stored).tobytes()]
        types = ["int8", "text", "int4", "int4", "int4", "bytea", "bytea"]
        query(plpy, GD, INSERT_BLOCK, types, [dataset_id, row["split"], row["part"], row["block"], row["n"], *packed])
        statistics.count(row["split"], row["part"], row["n"], packed)
    return statistics


def checksum(packed: Sequence[bytes], before: int) -> int:
    """The CRC-32 of a partition's training blocks so far, running on over one more; 0 before the first."""
    for part in packed:
        before = zlib.crc32(part, before)
    return before


def _each(cursor: Any) -> Iterator[Json]:
    while rows := cursor.fetch(4):
        yield from rows


def _moments(column: Json) -> Moments | None:
    """Statistics by element for vectors, over all of a column otherwise; none for categories."""
    if column["kind"] == "categorical":
        return None
    return Moments(is_elementwise=column["kind"] == "tensor" and len(column["shape"]) == 1)


def _check_values(inputs: Sequence[Json], fields: list[Any]) -> None:
    """Refuse infinite numbers, and images with missing pixels."""
    for column, values in zip(inputs, fields, strict=True):
        if values.dtype.kind != "f":
            continue
        if np.isinf(values).any():
            raise InvalidData(f"input {column['column']!r} has infinite values", hint="Turn them into NULL in a view.")
        if values.ndim > 2 and np.isnan(values).any():
            raise InvalidData(
                f"input {column['column']!r} has NaN values",
                hint="Leave them out in a view: an image cannot be imputed.",
            )


def _observe(statistics: _Statistics, fields: list[Any], targets: Any) -> None:
    for moments, values in zip(statistics.inputs, fields, strict=True):
        if moments is not None:
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
        target.update({key: value[0] for key, value in statistics.target.statistics().items() if key != "missing"})
    shape = encoded_shape(inputs)
    plan = plpy.prepare(INSERT_PARTITION, ["int8", "int4", "int8", "int8", "int8", "int8", "int8"])
    for part, n_bytes in sorted(statistics.n_bytes.items()):
        n_rows = [statistics.n_rows[split, part] for split in splitting.SPLITS]
        plpy.execute(plan, [dataset_id, part, *n_rows, n_bytes, statistics.checksums[part]])
    encoder = {"inputs": list(inputs), "input_shape": shape, "target": target}
    plan = plpy.prepare(FINISH_DATASET, ["int8", "jsonb", "int4[]", "float8"])
    plpy.execute(plan, [dataset_id, json.dumps(encoder), shape, seconds])
