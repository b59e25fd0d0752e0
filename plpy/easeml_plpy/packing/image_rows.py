"""Labelled images that fit into memory: read once, ordered there, and dealt into blocks without a temporary table.

A table of images is mostly bytes that packing only moves. The server would copy them, sort them by place and send each
row by itself; here they come some thousand rows at a time, and each block gathers its rows. Unusual cases (a row
without its label, an image of another size, a class with few rows) are left to the server, which reports what is wrong.
Both ways give the same blocks, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.block_decoding import PackedRows
from easeml_plpy.columns.columns import Columns
from easeml_plpy.columns.encoder import Field, LabelTarget, NumberField, NumericField, TensorField
from easeml_plpy.columns.encoding import row_bytes
from easeml_plpy.columns.sent_columns import decode_payload, int8s, payload_sql
from easeml_plpy.packing.dealing import SPLITS
from easeml_plpy.packing.pack_request import PackRequest
from easeml_plpy.packing.paged_relations import has_pages, pages_sql, size_of, within_sql
from easeml_plpy.packing.random_places import are_filled, copies, places, splits_at_random
from easeml_plpy.packing.source_rows import MAX_LABELS, RowsSql, are_few, is_left_open, labels_sql, task_of
from easeml_plpy.packing.splitting import split_sizes
from easeml_plpy.server.chunks import STATEMENT_ROWS
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.session import Session, Statement, only_column
from easeml_plpy.server.value_types import Array

HELD_BYTES = 256 << 20
ROW_BYTES = 256
"""Memory that a row's key, label and place take beside its image."""
MOST_PAGE_ROWS = 291
"""The most rows that a page of the server can hold."""
LARGEST_CHUNK = 512 << 20


class _Chunk(NamedTuple):
    """Some thousand rows: their numbers and images, hashes, keys of the shuffle, labels and keys."""

    n: int
    payload: bytes | None
    hashes: bytes | None
    shuffled: bytes | None
    labels: str | None
    keys: str | None


class _Label(NamedTuple):
    label: str | None
    rank: int


class Labels(NamedTuple):
    """The labels in the order of their codes, and of each row the code and the rank."""

    names: tuple[str, ...]
    codes: Array
    ranks: Array


class ImageRows(NamedTuple):
    """All rows in the order of the table: values of each input, hashes, keys of the shuffle, labels and keys."""

    fields: Sequence[NumberField]
    values: Sequence[Array]
    hashes: Array
    k: Array
    labels: Labels
    keys: Sequence[str | None]


class _Read(NamedTuple):
    """Rows as they were read: their labels are texts."""

    values: Sequence[Array]
    hashes: Array
    k: Array
    labels: Sequence[str | None]
    keys: Sequence[str | None]


class Shuffled(NamedTuple):
    """The split of each row, by its place in SPLITS, and the keys by which the rows of a split are ordered."""

    splits: Array
    k: Array


class HeldRows(NamedTuple):
    """All rows of a source, with the place of each."""

    inputs: Sequence[Field]
    target: LabelTarget
    values: Sequence[Array]
    codes: Array
    hashes: Array
    keys: Sequence[str] | None
    splits: Array
    k: Array
    n_partitions: int

    @property
    def n_train_rows(self) -> int:
        """How many rows train."""
        return int((self.splits == SPLITS.index("train")).sum())

    def blocks(self, block_rows: int) -> Iterator[PackedRows]:
        """Yield the blocks in their order."""
        for place in places(self.splits, self.k, self.n_partitions, block_rows):
            rows = place.rows
            keys = None if self.keys is None else _texts_sql([self.keys[row] for row in rows.tolist()])
            hashes = f"{{{','.join(map(str, self.hashes[rows].tolist()))}}}" if self.keys is None else None
            fields = [values.take(rows, axis=0) for values in self.values]
            yield PackedRows(*place[:3], len(rows), keys, hashes, fields, self.codes[rows])


def held_rows(
    session: Session, request: PackRequest, columns: Columns, inputs: Sequence[Field], rows: RowsSql
) -> HeldRows | None:
    """Return the rows of a source of labelled images, or None if the server has to place them."""
    read = read_images(session, request, columns, inputs, rows)
    if read is None:
        return None
    keys = [key for key in read.keys if key is not None] if rows.has_key else None
    if keys is not None and len(set(keys)) < len(read.keys):
        return None  # of columns that the caller has named
    shuffled = shuffle(session, request, read.hashes, read.k, read.labels, keys)
    if shuffled is None:
        return None
    target = LabelTarget(request.target, columns[request.target].type, read.labels.names)
    codes, n_partitions = read.labels.codes, request.n_partitions
    return HeldRows(read.fields, target, read.values, codes, read.hashes, keys, *shuffled, n_partitions)


def read_images(
    session: Session,
    request: PackRequest,
    columns: Columns,
    inputs: Sequence[Field],
    rows: RowsSql,
    most_rows: int = HELD_BYTES // ROW_BYTES,
) -> ImageRows | None:
    """Return the rows of a source of labelled images; None if it is another one, or does not fit into memory."""
    fields = _fields_of(request, inputs)
    if fields is None or not may_be_images(request, columns, inputs) or not has_pages(session, request.relation):
        return None
    size = size_of(session, request.source)
    step = size.pages_of(STATEMENT_ROWS)
    if (
        size.n_rows > most_rows
        or size.n_rows * (row_bytes(fields) + ROW_BYTES) > HELD_BYTES
        or step * MOST_PAGE_ROWS * row_bytes(fields) > LARGEST_CHUNK
    ):
        return None
    labels_of_source = labels_sql(columns[request.target], f"(SELECT {rows.target} AS y FROM {request.source}) source")
    distinct_labels = session.rows(Statement(labels_of_source, (), _Label, is_kept=False))
    is_open = is_left_open(request, columns[request.target])
    if len(distinct_labels) > MAX_LABELS or (is_open and not are_few(size.n_rows, len(distinct_labels))):
        return None
    chunks = session.each(_chunks_of(session, request, columns, fields, rows, step), request.source)
    read = _read(chunks, fields, size.n_rows)
    labels = None if read is None else _labels_of(distinct_labels, read.labels)
    if read is None or labels is None:
        return None
    return ImageRows(fields, read.values, read.hashes, read.k, labels, read.keys)


def may_be_images(request: PackRequest, columns: Columns, inputs: Sequence[Field]) -> bool:
    """Return whether a request is about labelled images that are dealt at random, as far as its columns say."""
    is_at_random = request.split_by is None and not request.n_folds
    is_labelled = task_of(request, columns[request.target]) == "classification"
    return is_at_random and is_labelled and _fields_of(request, inputs) is not None


def shuffle(
    session: Session, request: PackRequest, hashes: Array, k: Array, labels: Labels, keys: Sequence[str] | None
) -> Shuffled | None:
    """Return the split of each row and its place in the shuffle; None if there are too few rows of some class."""
    again = copies(hashes, keys)
    if again.any():
        k = _shuffled_again(session, request.seed, hashes, again, k)
    splits = splits_at_random(labels.ranks, k, split_sizes(request, len(k), has_labels=True))
    n_least = int(np.bincount(splits, minlength=len(SPLITS)).min())
    are_all = len(labels.names) > 1 and are_filled(splits, labels.codes, len(labels.names))
    return Shuffled(splits, k) if are_all and n_least >= request.n_partitions else None


def _fields_of(request: PackRequest, inputs: Sequence[Field]) -> list[NumberField] | None:
    """Return the inputs if they are numbers and one image, whose shape the caller has said."""
    numbers = [field for field in inputs if isinstance(field, NumericField | TensorField)]
    images = [field for field in numbers if isinstance(field, TensorField)]
    if len(numbers) < len(inputs) or len(images) != 1 or images[0].is_array or request.input_shape is None:
        return None
    return [replace(field, shape=request.input_shape) if isinstance(field, TensorField) else field for field in numbers]


def _chunks_of(
    session: Session,
    request: PackRequest,
    columns: Columns,
    fields: Sequence[NumberField],
    rows: RowsSql,
    step: int,
) -> Statement[_Chunk]:
    """Return a statement that yields all rows as one snapshot sees them, in the order of the table."""
    label = columns_of.text_sql(columns[request.target].type, "y")
    keys = "array_to_json(array_agg(key))::text" if rows.has_key else "NULL::text"
    values = [(field, columns_of.read_sql(field, f"i{k}")) for k, field in enumerate(fields)]
    shuffled = f"array_agg(hash_record_extended(ROW(h, 1::int8), {int(request.seed)}))"
    sql = (
        f"SELECT chunk.* FROM {pages_sql('$1', step)} CROSS JOIN LATERAL (SELECT count(*)::int AS n,"
        f" {payload_sql(values, session.schema)} AS payload,"
        f" {session.schema}.array_bytes(array_agg(h)) AS hashes, {session.schema}.array_bytes({shuffled}) AS shuffled,"
        f" array_to_json(array_agg({label}))::text AS labels, {keys} AS keys"
        f" FROM ({rows.hashed_rows(request, [], f'WHERE {within_sql(step)}')} OFFSET 0) AS hashed) AS chunk"
        " WHERE chunk.n > 0"
    )
    return Statement(sql, ("regclass",), _Chunk, is_kept=False)


def _read(chunks: Iterable[_Chunk], fields: Sequence[NumberField], n_rows: int) -> _Read | None:
    """Return the rows as arrays; None if their shapes differ, or there are more than were counted. Each chunk is
    written to its final place, because joining them at the end would take their memory twice.
    """
    whole = [np.empty((n_rows, *field.shape), field.stored_type) for field in fields]
    hashes, k = np.empty((2, n_rows), np.int64)
    labels: list[str | None] = []
    keys: list[str | None] = []
    n_key_bytes = 0
    for chunk in chunks:
        place = slice(len(labels), len(labels) + chunk.n)
        n_key_bytes += len(chunk.keys or "")
        if place.stop > n_rows or n_key_bytes > HELD_BYTES:
            return None
        try:
            parts = decode_payload(fields, chunk.payload, chunk.n)
        except InvalidData:
            return None
        for into, part in zip([*whole, hashes, k], [*parts, int8s(chunk.hashes), int8s(chunk.shuffled)], strict=True):
            into[place] = part
        labels += json.loads(chunk.labels or "[]")
        keys += json.loads(chunk.keys or "[]")
    n = len(labels)
    return _Read([values[:n] for values in whole], hashes[:n], k[:n], labels, keys) if n else None


def _labels_of(distinct_labels: Sequence[_Label], texts: Sequence[str | None]) -> Labels | None:
    """Return the labels of the rows; None if one is missing, or was added after the labels were read."""
    codes = {label.label: code for code, label in enumerate(distinct_labels)}
    if None in codes or not codes.keys() >= set(texts):
        return None
    of_rows = np.fromiter(map(codes.__getitem__, texts), np.int32, len(texts))
    ranks = np.array([label.rank for label in distinct_labels])[of_rows]
    return Labels(tuple(str(label.label) for label in distinct_labels), of_rows, ranks)


def _shuffled_again(session: Session, seed: int, hashes: Array, again: Array, k: Array) -> Array:
    """Return the shuffle keys, with new ones for duplicate rows."""
    repeated = np.flatnonzero(again)
    k_again = f"array_agg(hash_record_extended(ROW(u.h, u.n), {int(seed)}) ORDER BY u.place)"
    sql = f"SELECT {session.schema}.array_bytes({k_again}) AS k FROM unnest($1, $2) WITH ORDINALITY u(h, n, place)"
    statement: Statement[bytes] = Statement(sql, ("int8[]", "int8[]"), only_column, is_kept=False)
    shuffled = k.copy()
    shuffled[repeated] = int8s(session.row(statement, hashes[repeated].tolist(), (again[repeated] + 1).tolist()))
    return shuffled


def _texts_sql(texts: Sequence[str]) -> str:
    """Return an array of texts as SQL writes it."""
    whole = '","'.join(texts)
    if "\\" in whole or whole.count('"') > 2 * (len(texts) - 1):
        whole = '","'.join(text.replace("\\", r"\\").replace('"', r"\"") for text in texts)
    return f'{{"{whole}"}}'
