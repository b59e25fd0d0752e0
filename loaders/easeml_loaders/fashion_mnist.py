"""Fashion-MNIST from Debian's package: 60,000 training and 10,000 test images of 28 by 28 pixels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from easeml_loaders.idx_files import IdxPair, idx_pair, image_column, pair_chunks
from easeml_loaders.source import BytesAs, Chunk, Column, Source, Values
from easeml_plpy.server.errors import InvalidData, NotFound

PACKAGE_FOLDER = Path("/usr/share/datasets/fashion-mnist")
PARTS = (("train", False), ("t10k", True))  # (prefix of the files, are they the test images)
LABELS = (
    "t-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"
)  # fmt: skip


def fashion_mnist_source(folder: Path = PACKAGE_FOLDER, *, bytes_as: BytesAs = "bytea") -> Source:
    """Return columns `image` (784 bytes, or smallint[28][28]), `label` (its name) and `is_test`."""
    names = [(f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte", is_test) for prefix, is_test in PARTS]
    parts = [(idx_pair(_file(folder, images), _file(folder, labels)), is_test) for images, labels, is_test in names]
    (first, _), (second, _) = parts
    if first.shape != second.shape:
        raise InvalidData(f"{folder}: training images are {first.shape}, test images {second.shape}")
    columns = (image_column("image", first.shape, bytes_as), Column("label", "text"), Column("is_test", "boolean"))

    def chunks() -> Iterator[Chunk]:
        for pair, is_test in parts:
            yield from _part_chunks(pair, is_test, bytes_as)

    n_rows = first.n_rows + second.n_rows
    return Source(columns, n_rows, chunks, f"Fashion-MNIST (Debian's dataset-fashion-mnist), {folder}")


def _file(folder: Path, name: str) -> Path:
    """Return the file, packed or plain, whichever is there."""
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise NotFound(
        f"Fashion-MNIST is not in {folder}: no {name}.gz",
        hint="Type: apt-get install dataset-fashion-mnist (or give --folder).",
    )


def _part_chunks(pair: IdxPair, is_test: bool, bytes_as: BytesAs) -> Iterator[Chunk]:
    names = np.array([label.encode() for label in LABELS])
    for pixels, codes in pair_chunks(pair, bytes_as):
        if codes.max() >= len(LABELS):
            raise InvalidData(f"{pair.labels}: label {codes.max()}, expected 0 to {len(LABELS) - 1}")
        yield [Values(pixels), Values(names[codes]), Values(np.full(len(codes), is_test))]
