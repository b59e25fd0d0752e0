"""Arrays in .npy and .npz files: one row an example, streamed, never unpickled.

`numpy.load` would unpack a member of an .npz whole; here each array is read through its own stream in step
with the others, so memory holds one chunk of each. Only an array in Fortran order is read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from easeml_loaders.files import (
    LARGEST_RATIO,
    MOST_WHOLE_BYTES,
    check_ended,
    check_holds,
    check_row,
    most_bytes,
    opened,
    read_exactly,
    reading,
)
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
from easeml_plpy.server.errors import InvalidArgument, InvalidData

ELEMENT_OF_DTYPE = {
    "bool": "boolean", "int8": "smallint", "uint8": "smallint", "int16": "smallint", "uint16": "integer",
    "int32": "integer", "uint32": "bigint", "int64": "bigint", "uint64": "bigint", "float16": "real",
    "float32": "real", "float64": "double precision",
}  # fmt: skip
LONGEST_REASON = 200


@dataclass(frozen=True)
class StoredArray:
    """One array of a file: what its header says, and how to open a stream that starts at the header."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool
    most_bytes: int
    open_stream: Callable[[], AbstractContextManager[IO[bytes]]]

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape[1:])


def numpy_source(
    path: Path, *, inputs: Sequence[str] = (), target: str | None = None, bytes_as: BytesAs = "bytea"
) -> Source:
    """Return one column an array, in the file's order; or just `inputs` and `target`: `array` or `array=column`.

    The single array of an .npy file goes by the file's name without its ending.
    """
    chosen = _chosen(stored_arrays(path), [*inputs, *([] if target is None else [target])], path)
    _check_lengths([array for _, array in chosen], path)
    columns = tuple(_column(name, array, bytes_as, path) for name, array in chosen)
    check_column_names([column.name for column in columns], str(path))

    def chunks() -> Iterator[Chunk]:
        yield from _chunks(columns, [array for _, array in chosen], path)

    return Source(columns, chosen[0][1].shape[0], chunks, str(path))


def stored_arrays(path: Path) -> dict[str, StoredArray]:
    """Return the arrays of a file by name, from their headers alone."""
    with opened(path) as file:
        is_zip = file.read(2) == b"PK"
    if not is_zip:
        return {path.stem: _described(path.stem, lambda: opened(path), path, most_bytes(path))}
    with _archive(path) as archive:
        members = archive.infolist()
    return {name: _described(name, open_member, path, most) for name, open_member, most in _openers(path, members)}


def _openers(
    path: Path, members: Sequence[ZipInfo]
) -> Iterator[tuple[str, Callable[[], AbstractContextManager[IO[bytes]]], int]]:
    for member in members:
        name = member.filename
        most = min(member.file_size, member.compress_size * LARGEST_RATIO)
        yield name.removesuffix(".npy"), lambda name=name: _opened_member(path, name), most  # type: ignore[misc]


@contextmanager
def _opened_member(path: Path, member: str) -> Iterator[IO[bytes]]:
    with _archive(path) as archive, _unpacked(archive, member, path) as stream:
        yield stream


@contextmanager
def _archive(path: Path) -> Iterator[ZipFile]:
    with reading(path):
        try:
            archive = ZipFile(path)
        except (NotImplementedError, UnicodeDecodeError) as error:
            raise InvalidData(f"{path}: no archive that can be read: {error}") from error
        with archive:
            yield archive


def _unpacked(archive: ZipFile, member: str, path: Path) -> IO[bytes]:
    try:
        return archive.open(member)
    except RuntimeError as error:  # encrypted, or packed in a way that Python does not know
        raise InvalidData(
            f"{path}: {member!r} cannot be unpacked: {_first_line(error)}",
            hint="Save it again with numpy.savez or numpy.savez_compressed.",
        ) from error


def _described(
    name: str, open_stream: Callable[[], AbstractContextManager[IO[bytes]]], path: Path, most: int
) -> StoredArray:
    with open_stream() as stream:
        shape, is_fortran, dtype = _read_header(stream, name, path)
    return StoredArray(name, shape, dtype, is_fortran, most, open_stream)


def _read_header(stream: IO[bytes], name: str, path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(stream)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, is_fortran, dtype = read(stream)
    except KeyError as error:
        raise InvalidData(f"{path}: array {name!r} is in an unknown version of the .npy format") from error
    except (ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise InvalidData(f"{path}: {name!r} is no array in .npy format: {_first_line(error)}") from error
    if any(size < 0 for size in shape):
        raise InvalidData(f"{path}: {name!r} is no array in .npy format: it has a size below 0")
    return shape, is_fortran, dtype


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:LONGEST_REASON] or type(error).__name__


def _chosen(arrays: dict[str, StoredArray], names: Sequence[str], path: Path) -> list[tuple[str, StoredArray]]:
    """Return (column name, array) of the requested arrays, or of all."""
    if not names:
        return list(arrays.items())
    chosen = []
    for item in names:
        name, _, column = (item, "", "") if item in arrays else item.partition("=")
        if name not in arrays:
            raise InvalidArgument(f"no array {name!r} in {path}", hint=f"It holds: {', '.join(arrays)}")
        chosen.append((column or name, arrays[name]))
    return chosen


def _check_lengths(arrays: Sequence[StoredArray], path: Path) -> None:
    if not arrays:
        raise InvalidData(f"{path}: no arrays")
    for array in arrays:
        if not array.shape:
            raise InvalidData(f"{path}: array {array.name!r} is a single value, expected one row an example")
        n_bytes = array.shape[0] * array.row_bytes
        check_holds(path, n_bytes, array.most_bytes)
        check_row(path, array.row_bytes)
        if array.is_fortran and n_bytes > max(MOST_WHOLE_BYTES, path.stat().st_size):
            raise InvalidData(
                f"{path}: array {array.name!r} is packed and in Fortran order, so it would be unpacked whole:"
                f" expected at most {MOST_WHOLE_BYTES} bytes, got {n_bytes}",
                hint="Save it in C order: numpy.ascontiguousarray.",
            )
    if len({array.shape[0] for array in arrays}) > 1:
        lengths = ", ".join(f"{array.name} {array.shape[0]}" for array in arrays)
        raise InvalidData(
            f"{path}: the arrays do not have the same number of rows: {lengths}",
            hint="Choose those that belong together with --inputs and --target.",
        )


def _column(name: str, array: StoredArray, bytes_as: BytesAs, path: Path) -> Column:
    """Return the column that keeps the array's rank and precision."""
    shape = array.shape[1:]
    if array.dtype.kind in "US" and not shape and array.dtype.itemsize:
        return Column(name, "text")
    if array.dtype.name not in ELEMENT_OF_DTYPE:
        raise InvalidData(
            f"{path}: no column type keeps array {array.name!r} of {array.dtype}, rank {len(array.shape)}",
            hint="Numbers and booleans of any rank load, and text of rank 1; Python objects never do.",
        )
    if len(shape) > MAX_ARRAY_RANK or 0 in shape:
        raise InvalidData(f"{path}: array {array.name!r} has rows of shape {shape}, which no array column keeps")
    if shape and array.dtype == np.uint8 and bytes_as == "bytea":
        return Column(name, "bytea")
    return Column(name, ELEMENT_OF_DTYPE[array.dtype.name], shape)


def _chunks(columns: Sequence[Column], arrays: Sequence[StoredArray], path: Path) -> Iterator[Chunk]:
    """Read all arrays in step."""
    step = rows_per_chunk(sum(array.row_bytes for array in arrays))
    with ExitStack() as stack:
        streams = [_blocks(array, step, stack, path) for array in arrays]
        for blocks in zip(*streams, strict=True):
            yield [_values(column, block, path) for column, block in zip(columns, blocks, strict=True)]


def _blocks(array: StoredArray, step: int, stack: ExitStack, path: Path) -> Iterator[NDArray[Any]]:
    """Yield one array in blocks of `step` rows."""
    stream = stack.enter_context(array.open_stream())
    _read_header(stream, array.name, path)
    if array.is_fortran:
        data = read_exactly(stream, array.row_bytes * array.shape[0], path)
        check_ended(stream, path)
        whole = np.frombuffer(data, array.dtype).reshape(array.shape, order="F")
        yield from (whole[start : start + step] for start in range(0, array.shape[0], step))
        return
    for start in range(0, array.shape[0], step):
        shape = (min(step, array.shape[0] - start), *array.shape[1:])
        data = read_exactly(stream, array.dtype.itemsize * prod(shape), path)
        yield np.frombuffer(data, array.dtype).reshape(shape)
    check_ended(stream, path)


def _values(column: Column, block: NDArray[Any], path: Path) -> Values:
    if block.dtype.kind == "U":
        return Values(_encoded(column, block, path))
    if block.dtype.kind == "S":
        _check_utf8(column, block, path)
    if column.element == "bytea":
        return Values(block.reshape(len(block), -1))
    return Values(block)


def _encoded(column: Column, block: NDArray[Any], path: Path) -> NDArray[Any]:
    try:
        encoded = np.char.encode(block, "utf-8")
        np.char.decode(encoded, "utf-8")  # numbers that are no characters may have been encoded
        return encoded
    except (SystemError, UnicodeError) as error:  # the former for one such number alone
        raise InvalidData(f"{path}: array {column.name!r} holds text that is no Unicode: {error}") from error


def _check_utf8(column: Column, block: NDArray[Any], path: Path) -> None:
    try:
        np.char.decode(block, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidData(f"{path}: array {column.name!r} holds bytes that are not UTF-8: {error}") from error
