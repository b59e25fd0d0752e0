"""Opening the files that loaders read, gzip or plain, and turning every read failure into one of our errors."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from lzma import LZMAError
from pathlib import Path
from typing import IO, AnyStr
from zipfile import BadZipFile

from easeml_plpy.server.errors import InvalidArgument, InvalidData

GZIP_MAGIC = b"\x1f\x8b"
LARGEST_RATIO = 1032  # deflate packs no more than that into a byte
MOST_LINE_BYTES = 64 << 20
"""Of a line: a packed file of some megabytes, or one with holes, has lines that fill the memory of any machine."""
MOST_ROW_BYTES = 256 << 20
"""Of a row of arrays: PostgreSQL keeps fields of less than a gigabyte, and a row is held several times."""
MOST_WHOLE_BYTES = 1 << 30
"""Of what is unpacked whole."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn failures to open, read or unpack `path` into one-line errors that name it."""
    try:
        yield
    except (gzip.BadGzipFile, BadZipFile, zlib.error, LZMAError, EOFError) as error:
        raise InvalidData(f"{path}: damaged or cut off: {error}") from error
    except MemoryError as error:
        raise InvalidData(f"{path}: reading it takes more memory than there is") from error
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror or error}") from error


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, through gzip if its first bytes say so, whatever its name."""
    with reading(path), path.open("rb") as file:
        is_gzip = file.read(2) == GZIP_MAGIC
        file.seek(0)
        if is_gzip:
            with gzip.open(file) as unpacked:
                yield unpacked  # type: ignore[misc]  # a GzipFile reads as IO[bytes] does
        else:
            yield file


def lines_of(stream: IO[AnyStr], name: Path | str, most: int = MOST_LINE_BYTES) -> Iterator[AnyStr]:
    """Yield lines with their ends; refuse one that is longer than `most` (bytes, or characters of a text) before it is
    read to its end."""
    for number in count(1):
        line = stream.readline(most + 1)
        if not line:
            return
        if len(line) > most:
            kind = "bytes" if isinstance(line, bytes) else "characters"
            raise InvalidData(f"{name}, line {number}: expected lines of at most {most} {kind}, got a longer one")
        yield line


def most_bytes(path: Path) -> int:
    """Return the largest number of bytes that a file can hold: its size, or if it is compressed, the most that deflate
    can expand it to.
    """
    with reading(path), path.open("rb") as file:
        return path.stat().st_size * (LARGEST_RATIO if file.read(2) == GZIP_MAGIC else 1)


def check_holds(path: Path, n_bytes: int, most: int) -> None:
    """Refuse a file whose header promises more than it can hold, before any memory is taken for it."""
    if n_bytes > most:
        raise InvalidData(
            f"{path}: cut off: its header says {_shown(n_bytes)} bytes of data, and it holds {most} at most"
        )


def check_row(path: Path, n_bytes: int) -> None:
    """Refuse a file whose header promises rows that are larger than any that can be stored."""
    if n_bytes > MOST_ROW_BYTES:
        raise InvalidData(
            f"{path}: expected rows of at most {MOST_ROW_BYTES} bytes, its header says {_shown(n_bytes)} bytes a row"
        )


def _shown(number: int) -> str:
    return str(number) if number < 10**18 else "more than 10^18"


def read_exactly(file: IO[bytes], n_bytes: int, path: Path) -> bytes:
    """Read a number of bytes. Raises an error if the file is cut off."""
    with reading(path):
        data = file.read(n_bytes)
    if len(data) != n_bytes:
        raise InvalidData(f"{path}: cut off: expected {n_bytes} more bytes, got {len(data)}")
    return data


def check_ended(file: IO[bytes], path: Path) -> None:
    """Refuse bytes after the last value; at the end of a packed file this also checks its checksum."""
    with reading(path):
        surplus = file.read(1)
    if surplus:
        raise InvalidData(f"{path}: more data than its header says")
