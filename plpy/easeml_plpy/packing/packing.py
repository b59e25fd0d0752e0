"""Packing a relation into the blocks of a dataset: shuffle once, split, encode, write. All inside the server.

Labelled images that fit into memory are ordered there (image_rows.py). The server orders all other rows:

1. The inputs and the target are copied to a temporary table, with a hash of each row under the seed.
2. Rows are ordered by that hash (identical rows by a count of their copies, so that they spread too), split into
   training, validation and test rows evenly over the labels, and dealt to partitions in turn.
3. Each block is one aggregate of binary rows, decoded by numpy at once and stored as contiguous arrays, while the
   statistics of the training rows stream by.

Everything happens in the caller's transaction: an error leaves nothing behind. The source is read, and blocks are
written, with the caller's rights; the rest of the dataset is written through requests (easeml.requests), before and
after.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.block_decoding import BlockDecoder, PackedRows
from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.columns import Columns, Source
from easeml_plpy.columns.encoder import Field, LabelTarget, Target
from easeml_plpy.columns.encoding import fields_to_bytes, row_bytes
from easeml_plpy.columns.target_statistics import folds_of
from easeml_plpy.packing import (
    image_rows,
    row_keys,
    source_documents,
    source_rows,
    source_shapes,
    source_texts,
    splitting,
)
from easeml_plpy.packing.explanations import notices
from easeml_plpy.packing.foreign_code import reading
from easeml_plpy.packing.pack_request import PackRequest, begun_dataset
from easeml_plpy.packing.packing_statistics import PackingStatistics
from easeml_plpy.packing.source_rows import RowsSql
from easeml_plpy.packing.source_texts import TextFacts
from easeml_plpy.packing.version_facts import version_facts
from easeml_plpy.server.chunks import block_rows
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import InvalidArgument, InvalidData
from easeml_plpy.server.near_names import some_of
from easeml_plpy.server.plpython import SqlValue
from easeml_plpy.server.session import Command, Session, Statement
from easeml_plpy.server.value_types import Array

AS_NULL = "Turn them into NULL in a view."
BYTES_AT_ONCE, BLOCKS_AT_ONCE = 512 << 10, 64
"""Limits of one insertion: bytes, and blocks."""


INSERT_BLOCK = Command(
    """
INSERT INTO easeml.blocks (dataset_id, split, partition_number, block_number, n_rows, row_keys, row_hashes, inputs,
    targets)
VALUES ($1, $2, $3, $4, $5, $6::text[], $7::bigint[], $8, $9)
""",
    ("int8", "text", "int4", "int4", "int4", "text", "text", "bytea", "bytea"),
)
INSERT_BLOCKS = Command(
    """
INSERT INTO easeml.blocks (dataset_id, split, partition_number, block_number, n_rows, row_keys, row_hashes, inputs,
    targets)
SELECT $1, b.split, b.part, b.block, b.n, b.keys::text[], b.hashes::bigint[], b.inputs, b.targets
FROM unnest($2, $3, $4, $5, $6, $7, $8, $9) b (split, part, block, n, keys, hashes, inputs, targets)
""",
    ("int8", "text[]", "int4[]", "int4[]", "int4[]", "text[]", "text[]", "bytea[]", "bytea[]"),
)
# Rows have names by which dataset_rows tells them.
NAMES = (
    "CASE WHEN count(r.key) > 0 THEN array_agg(r.key ORDER BY o.position)::text END AS keys, "
    "CASE WHEN count(r.key) = 0 THEN array_agg(r.h ORDER BY o.position)::text END AS hashes"
)
# Each statement runs once: compiling it takes longer than it saves.
SETTINGS = "SELECT set_config('work_mem', '256MB', true), set_config('jit', 'off', true)"
FINISH_DATASET = Command("SELECT easeml.request('finish_dataset', $1)", ("jsonb",))


@entry_point(returns_failure=True)
def pack_begun_dataset(session: Session, dataset_id: int) -> int:
    """Pack the source of a dataset that this transaction has begun; return the number of rows."""
    started = time.monotonic()  # recorded as a duration; no decision depends on it
    request = begun_dataset(session, dataset_id)
    columns = columns_of.read_columns(session, request.relation)
    check_columns(request, columns)
    session.execute(SETTINGS)
    inputs: list[Field] = [columns_of.input_field(columns[name]) for name in request.inputs]
    with reading(session, request.relation):
        rows = source_rows.rows_sql(session, request, columns, inputs)
        held = image_rows.held_rows(session, request, columns, inputs, rows)
        if held is None:
            return _pack_placed(session, request, columns, inputs, rows, started)
        packing = _Packing(session, request, held.inputs, held.target, row_key=rows.row_key)
        return packing.pack(held.blocks(packing.block_rows), held.n_train_rows, started)


def _pack_placed(
    session: Session, request: PackRequest, columns: Columns, inputs: Sequence[Field], rows: RowsSql, started: float
) -> int:
    """Pack rows of any kind and number, which the server places in temporary tables."""
    source_rows.copy_rows(session, request, columns, rows)
    n_skipped = source_rows.drop_rows_without_target(session, request)
    row_keys.check_keys(session, request)
    target = source_rows.target_of(session, request, columns[request.target])
    inputs = source_shapes.with_shapes(session, request, inputs)
    splitting.order_rows(session, request, target)
    n_train_rows = splitting.check_splits(session, request)
    sources = [Source(field, columns_of.read_sql(field, f"r.i{k}")) for k, field in enumerate(inputs)]
    sources = source_documents.with_keys(session, sources)
    facts = source_texts.read_facts(session, sources)
    sources = source_texts.without_identifiers(session, sources, facts)
    sources = source_texts.with_dictionaries(session, sources, facts, request.n_partitions)
    fields = [source.field for source in sources]
    packing = _Packing(session, request, fields, target, row_key=rows.row_key, n_skipped=n_skipped, facts=facts)
    n_rows = packing.pack(_placed_blocks(session, sources, target, packing.block_rows), n_train_rows, started)
    for table in ("easeml_rows", "easeml_order"):
        session.execute(f"DROP TABLE pg_temp.{table}")
    return n_rows


def check_columns(request: PackRequest, columns: Columns) -> None:
    if not request.inputs:
        raise InvalidArgument(
            "inputs: expected at least one column", hint=f"{request.source} has: {some_of([*columns])}."
        )
    columns_of.check_number(len(request.inputs))
    columns_of.require(columns, request.inputs, "inputs", request.source)
    columns_of.require(columns, [request.target], "target", request.source)
    if len(set(request.inputs)) < len(request.inputs):
        raise InvalidArgument("inputs: a column is named twice", hint="Name each column once.")
    if request.target in request.inputs:
        raise InvalidArgument(
            f"target: column {request.target!r} is among the inputs, so there is nothing to learn",
            hint="Take it out of the inputs.",
        )
    source_rows.task_of(request, columns[request.target])
    if request.split_by is not None:
        splitting.check_column(request, request.split_by, columns)


class _Block(NamedTuple):
    """A block as read from the source: its place, its rows as `record_send` wrote them, and its free texts. `keys` or
    `hashes` identify the rows: arrays in SQL's form, which are passed on unparsed.
    """

    split: str
    part: int
    block: int
    n: int
    keys: str | None
    hashes: str | None
    payload: bytes
    texts: str | None


class _Packing:
    """A dataset being written: its row is there, and easeml.finish_dataset fills it in."""

    def __init__(
        self,
        session: Session,
        request: PackRequest,
        inputs: Sequence[Field],
        target: Target,
        *,
        row_key: str,
        n_skipped: int = 0,
        facts: Mapping[str, TextFacts] | None = None,
    ) -> None:
        self._session, self._inputs, self._target = session, inputs, target
        self._facts, self._row_key = facts or {}, row_key
        self._n_folds = request.n_folds or 0
        self._dataset_id, self._n_partitions, self._n_skipped = request.dataset_id, request.n_partitions, n_skipped
        self.block_rows = block_rows_of(request.block_rows, inputs)

    def pack(self, blocks: Iterable[PackedRows], n_train_rows: int, started: float) -> int:
        """Write the blocks and finish the dataset; return the number of rows."""
        statistics = self.write_blocks(blocks, n_train_rows)
        self.finish(statistics, started)
        return statistics.n_rows.total()

    def write_blocks(self, blocks: Iterable[PackedRows], n_train_rows: int) -> PackingStatistics:
        """Observe and store the blocks one after another."""
        stored = target_types(self._target)[1]
        statistics = PackingStatistics(self._inputs, self._target, n_train_rows)
        waiting: list[tuple[SqlValue, ...]] = []
        n_bytes = 0
        for block in blocks:
            check_values(self._inputs, block.fields)
            if block.split == "train":
                statistics.observe(block.fields, block.targets, folds_of(block.block * self.block_rows, block.n))
            packed = [fields_to_bytes(block.fields), block.targets.astype(stored).tobytes()]
            statistics.count(block.split, block.part, block.n, packed)
            waiting.append((*block[:6], *packed))
            n_bytes += sum(map(len, packed))
            if n_bytes >= BYTES_AT_ONCE or len(waiting) == BLOCKS_AT_ONCE:
                self._insert(waiting)
                waiting, n_bytes = [], 0
        self._insert(waiting)
        return statistics

    def _insert(self, blocks: Sequence[tuple[SqlValue, ...]]) -> None:
        """Insert blocks; a large one is inserted alone, without an array."""
        if len(blocks) == 1:
            self._session.run(INSERT_BLOCK, self._dataset_id, *blocks[0])
        elif blocks:
            self._session.run(INSERT_BLOCKS, self._dataset_id, *map(list, zip(*blocks, strict=True)))

    def finish(self, statistics: PackingStatistics, started: float) -> None:
        """Finish the dataset: easeml counts the rows itself, and from then on nobody can add any."""
        fields = statistics.fields(self._inputs)
        finished = version_facts(fields, statistics.measured_target(self._target), self._facts, self._n_folds) | {
            "dataset_id": self._dataset_id,
            "block_rows": self.block_rows,
            "n_skipped_rows": self._n_skipped,
            "row_key": self._row_key,
            "checksums": [statistics.checksums[part] for part in range(self._n_partitions)],
            "packing_seconds": time.monotonic() - started,
        }
        self._session.run(FINISH_DATASET, json.dumps(finished))
        for line in notices(fields, statistics.distinct(fields)):
            self._session.notice(line)


def _placed_blocks(
    session: Session, sources: Sequence[Source], target: Target, block_rows: int
) -> Iterator[PackedRows]:
    """Yield the blocks that the server has placed; memory is bounded by a few of them."""
    sql, dictionaries = block_sql(sources, target, block_rows, NAMES)
    statement = Statement(sql, ("text[]",) * len(dictionaries), _Block, is_kept=False)
    decoder = BlockDecoder([source.field for source in sources], target_types(target)[0])
    for block in session.each(statement, *dictionaries, at_once=4):
        yield PackedRows(*block[:6], *decoder.decode(block.payload, block.texts, block.n))


def block_rows_of(asked_for: int | None, inputs: Sequence[Field]) -> int:
    """Return how many rows a block has: the requested number, else by the size of a row."""
    return asked_for or block_rows(row_bytes(inputs))


def target_types(target: Target) -> tuple[str, str]:
    """Return the numpy types of targets as sent by the server, and as stored."""
    return (">i4", "<i4") if isinstance(target, LabelTarget) else (">f8", "<f8")


def block_sql(
    sources: Sequence[Source], target: Target, block_rows: int, names: str, schema: str = "easeml"
) -> tuple[str, list[list[str]]]:
    """Return SQL that yields the blocks in order, and its parameters: the dictionary of each text column.

    `names`: SQL of further columns, aggregates over the rows of a block.
    """
    joins: list[str] = []
    dictionaries: list[list[str]] = []

    def dictionary(entries: Sequence[str], expression: str) -> str:
        dictionaries.append(list(entries))
        n = len(dictionaries)
        joins.append(f"LEFT JOIN unnest(${n}) WITH ORDINALITY AS d{n}(entry, code) ON d{n}.entry = {expression}")
        return f"d{n}"

    sent = []
    for field, value in sources:
        if not isinstance(field, TextField):
            alias = dictionary(field.categories, value) if isinstance(field, CategoricalField) else ""
            sent.append(columns_of.send_sql(field, value, alias, schema))
    if isinstance(target, LabelTarget):
        sent.append(f"({dictionary(target.labels, columns_of.text_sql(target.type, 'r.y'))}.code - 1)::int4")
    else:
        sent.append("r.y::float8")
    texts = [source for source in sources if isinstance(source.field, TextField)]
    sql = (
        f"SELECT o.split, o.part, o.position / {int(block_rows)} AS block, count(*) AS n, "
        f"{names}, "
        f"string_agg(record_send(ROW({', '.join(sent)})), ''::bytea ORDER BY o.position) AS payload, "
        f"{columns_of.texts_sql(texts, ' ORDER BY o.position')} AS texts "
        f"FROM pg_temp.easeml_order o JOIN pg_temp.easeml_rows r ON r.ctid = o.row {' '.join(joins)} "
        "GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    )
    return sql, dictionaries


def check_values(inputs: Sequence[Field], fields: Sequence[Array]) -> None:
    """Refuse infinite numbers, those so large that their squares are, and images with missing pixels."""
    for field, values in zip(inputs, fields, strict=True):
        if values.dtype.kind != "f":
            continue
        if np.isinf(values).any():
            raise InvalidData(f"input {field.column!r} has infinite values", hint=AS_NULL)
        if (np.abs(values) > source_rows.LARGEST).any():
            raise InvalidData(f"input {field.column!r} has numbers beyond {source_rows.LARGEST:g}", hint=AS_NULL)
        if values.ndim > 2 and np.isnan(values).any():
            raise InvalidData(f"input {field.column!r} has NaN values", hint=source_shapes.NO_IMAGES)
