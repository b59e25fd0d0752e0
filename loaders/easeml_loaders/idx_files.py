"""IDX files, the format of MNIST and its kin: unsigned bytes, images and labels in two files.

Layout: two zero bytes, type (8: unsigned byte), rank, each dimension as a big-endian int32, then the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from easeml_loaders.files import check_ended, check_holds, check_row, most_bytes, opened, read_exactly, reading
from easeml_loaders.source import (
    MAX_ARRAY_RANK,
    BytesAs,
    Chunk,
    Column,
    Source,
    Values,
    check_column_names,
    rows_per_chunk,
)
from easeml_plpy.server.errors import InvalidData

MAGIC = b"\x00\x00\x08"  # two zero bytes and the type code of unsigned bytes


@dataclass(frozen=True)
class IdxPair:
    """Images (n, *shape) and their labels (n,), checked to belong together."""

    images: Path
    labels: Path
    n_rows: int
    shape: tuple[int, ...]


def idx_source(images: Path, labels: Path, *, bytes_as: BytesAs = "bytea") -> Source:
    """Return columns `image` (bytea, or smallint array) and `label` (integer) from two IDX files."""
    pair = idx_pair(images, labels)
    columns = (image_column("image", pair.shape, bytes_as), Column("label", "integer"))
    check_column_names([column.name for column in columns], str(images))

    def chunks() -> Iterator[Chunk]:
        for pixels, codes in pair_chunks(pair, bytes_as):
            yield [Values(pixels), Values(codes)]

    return Source(columns, pair.n_rows, chunks, f"{images} and {labels}")


def image_column(name: str, shape: Sequence[int], bytes_as: BytesAs) -> Column:
    """Return the column for 8-bit values of this shape."""
    return Column(name, "bytea") if bytes_as == "bytea" else Column(name, "smallint", tuple(shape))


def idx_pair(images: Path, labels: Path) -> IdxPair:
    """Read both headers and refuse what is not images with as many labels."""
    (n_images, *shape), (n_labels, *label_shape) = idx_shape(images), idx_shape(labels)
    if not shape or len(shape) > MAX_ARRAY_RANK or not prod(shape):
        raise InvalidData(f"{images}: expected images, got an array of shape {(n_images, *shape)}")
    if label_shape:
        raise InvalidData(f"{labels}: expected one label a row, got shape {(n_labels, *label_shape)}")
    if n_images != n_labels:
        raise InvalidData(f"{n_images} images in {images}, but {n_labels} labels in {labels}")
    for path, n_bytes in ((images, n_images * prod(shape)), (labels, n_labels)):
        check_holds(path, n_bytes, most_bytes(path))
    check_row(images, prod(shape))
    return IdxPair(images, labels, n_images, tuple(shape))


def idx_shape(path: Path) -> tuple[int, ...]:
    """Return the shape that a file's header gives."""
    with opened(path) as file:
        return _read_shape(file, path)


def _read_shape(file: IO[bytes], path: Path) -> tuple[int, ...]:
    with reading(path):
        magic = file.read(4)
    if magic[:3] != MAGIC or len(magic) < 4 or magic[3] == 0:
        raise InvalidData(
            f"{path}: no IDX file of unsigned bytes: it begins with {magic.hex(' ') or 'nothing'}",
            hint="Expected 00 00 08 and the number of dimensions.",
        )
    return tuple(np.frombuffer(read_exactly(file, 4 * magic[3], path), ">u4").tolist())


def pair_chunks(pair: IdxPair, bytes_as: BytesAs) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield images, (n, n_bytes) or (n, *shape), and label codes (n,), a chunk at a time."""
    step = rows_per_chunk(prod(pair.shape))
    row_shape = (prod(pair.shape),) if bytes_as == "bytea" else pair.shape
    with opened(pair.images) as images, opened(pair.labels) as labels:
        _read_shape(images, pair.images)
        _read_shape(labels, pair.labels)
        for start in range(0, pair.n_rows, step):
            n_rows = min(step, pair.n_rows - start)
            pixels = _read_bytes(images, (n_rows, *row_shape), pair.images)
            yield pixels, _read_bytes(labels, (n_rows,), pair.labels)
        for file, path in ((images, pair.images), (labels, pair.labels)):
            check_ended(file, path)


def _read_bytes(file: IO[bytes], shape: tuple[int, ...], path: Path) -> NDArray[np.uint8]:
    return np.frombuffer(read_exactly(file, prod(shape), path), np.uint8).reshape(shape)
