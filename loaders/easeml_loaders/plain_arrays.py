"""8-bit pictures in a .npy file, with their labels, as tuples of a binary COPY: without numpy.

Importing numpy takes as long as sending some ten thousand small pictures. Rarer files and broken ones are left to
numpy, which reports what is wrong.
"""

from __future__ import annotations

import ast
import os
import struct
from collections.abc import Iterator, Sequence
from itertools import compress
from math import prod
from pathlib import Path
from typing import IO, NamedTuple

from easeml_loaders.files import read_exactly, reading
from easeml_loaders.picture_labels import Skipped, Wanted, is_known, read_labels

PART_BYTES = 1 << 16
"""Of pictures that are sent at once: while the server stores a part, the next one is made ready."""
MAGIC = b"\x93NUMPY\x01\x00"
CODES = {
    "|u1": "B", "|i1": "b", "<u2": "H", "<i2": "h", "<u4": "I", "<i4": "i", "<u8": "Q", "<i8": "q", "<f8": "d",
}  # fmt: skip


class Header(NamedTuple):
    """The header of a .npy file: the description of its array, and where the values begin."""

    descr: str
    shape: tuple[int, ...]
    begin: int


def copied_pictures(images: Path, labels: Path, form: Wanted, skipped: Skipped) -> Iterator[tuple[int, bytes]] | None:
    """Return parts of a COPY into the columns input and output, each as (rows, bytes of their tuples).

    None for files that need numpy: other types, other orders, broken or of another shape than wanted. Raises
    InvalidData for a broken CSV of labels; the iterator raises it for a label that the task does not know, unless such
    labels are skipped.
    """
    if form.output is not None or not images.is_file():
        return None
    header = _header_of(images)
    n_bytes = prod(form.shape)
    if header is None or header.descr != "|u1" or len(header.shape) < 2 or prod(header.shape[1:]) != n_bytes:
        return None
    given = _given_in(labels) if labels.suffix == ".npy" else [label for _, label in read_labels(labels)]
    if given is None or not given or len(given) != header.shape[0]:
        return None
    return _parts(images, header.begin, given, form, skipped)


def _parts(
    images: Path, begin: int, given: Sequence[str], form: Wanted, skipped: Skipped
) -> Iterator[tuple[int, bytes]]:
    n_bytes = prod(form.shape)
    step = max(1, PART_BYTES // n_bytes)
    first = struct.pack(">hi", 2, n_bytes)
    fields = {label: _field(label, form) for label in set(given) if is_known("", label, form, Skipped(refuses=False))}
    with reading(images), images.open("rb") as file:
        file.seek(begin)
        for start in range(0, len(given), step):
            labels = given[start : start + step]
            pixels = memoryview(read_exactly(file, n_bytes * len(labels), images))
            pictures = [pixels[place : place + n_bytes] for place in range(0, len(pixels), n_bytes)]
            if not all(map(fields.__contains__, labels)):
                names = [f"image {start + place}" for place in range(len(labels))]
                kept = [is_known(name, label, form, skipped) for name, label in zip(names, labels, strict=True)]
                labels, pictures = list(compress(labels, kept)), list(compress(pictures, kept))
            tuples: list[bytes | memoryview] = [first] * (3 * len(labels))
            tuples[1::3], tuples[2::3] = pictures, map(fields.__getitem__, labels)
            yield len(labels), b"".join(tuples)


def _field(label: str, form: Wanted) -> bytes:
    """Return a label as the second field of a tuple."""
    if form.classes is None:
        return struct.pack(">id", 8, float(label))
    text = label.encode()
    return struct.pack(">i", len(text)) + text


def _header_of(path: Path) -> Header | None:
    """Return the header of a file whose array is in C order and wholly there; None for any other."""
    try:
        with path.open("rb") as file:
            return _header(file)
    except (OSError, ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError):
        return None


def _header(file: IO[bytes]) -> Header | None:
    if file.read(len(MAGIC)) != MAGIC:
        return None
    (length,) = struct.unpack("<H", file.read(2).ljust(2, b"\0"))
    fields = ast.literal_eval(file.read(length).decode("latin1").strip())
    descr, shape = fields["descr"], fields["shape"]
    is_plain = isinstance(descr, str) and isinstance(shape, tuple) and fields["fortran_order"] is False
    if not is_plain or not all(type(size) is int and size >= 0 for size in shape):
        return None
    header = Header(descr, shape, file.tell())
    n_values = int(descr[2:]) * (4 if descr[1] == "U" else 1) * prod(shape)
    return header if os.fstat(file.fileno()).st_size >= header.begin + n_values else None


def _given_in(path: Path) -> list[str] | None:
    """Return the labels of a .npy file; None for one that needs numpy."""
    header = _header_of(path)
    if header is None or len(header.shape) != 1:
        return None
    width = int(header.descr[2:]) if header.descr.startswith("<U") else 0
    code = CODES.get(header.descr)
    if not width and code is None:
        return None
    with reading(path), path.open("rb") as file:
        file.seek(header.begin)
        data = read_exactly(file, header.shape[0] * (4 * width or int(header.descr[2:])), path)
    if code is not None:
        return list(map(str, struct.unpack(f"<{header.shape[0]}{code}", data)))
    given = struct.unpack(f"{4 * width}s" * header.shape[0], data)
    try:
        names = {word: word.decode("utf-32-le").rstrip("\0") for word in set(given)}
    except UnicodeDecodeError:
        return None
    return list(map(names.__getitem__, given))
