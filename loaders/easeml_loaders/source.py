"""The words of loading: column, chunk, source. Every reader makes a `Source`; the table writer takes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from easeml_plpy.server.errors import InvalidData

CHUNK_BYTES = 4 * 1024 * 1024  # what one chunk of a source should hold: large enough to be fast, small in memory
MAX_NAME_BYTES = 63  # PostgreSQL cuts longer names off in silence
MOST_COLUMNS = 1600  # of a table of PostgreSQL
MAX_ARRAY_RANK = 6  # PostgreSQL's limit on dimensions

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called as (rows done, rows in all or None) after each chunk."""

BytesAs: TypeAlias = Literal["bytea", "array"]
"""How 8-bit images are stored: one bytea of 8 bits a pixel, or a smallint array that keeps the shape."""


@dataclass(frozen=True)
class Column:
    """A column of the table to be; a shape makes it an array of `element`, each row holding that shape."""

    name: str
    element: str
    shape: tuple[int, ...] = ()

    @property
    def stored_type(self) -> str:
        """The type as `format_type` spells it: the catalogue compares no array bounds."""
        return f"{self.element}[]" if self.shape else self.element

    @property
    def declared_type(self) -> str:
        """The type in CREATE TABLE, including array bounds, which document the definition."""
        return self.element + "".join(f"[{size}]" for size in self.shape)


class Values(NamedTuple):
    """One column of one chunk.

    Numbers and arrays: (n_rows, *shape). bytea: uint8 (n_rows, n_bytes). text: UTF-8, either a list of bytes
    or a numpy array of dtype S (n_rows,). `is_null`, where given, is (n_rows,); data under it is ignored.
    """

    data: NDArray[Any] | list[bytes]
    is_null: NDArray[np.bool_] | None = None


Chunk: TypeAlias = Sequence[Values]
"""As many values as the source has columns, all of the same number of rows."""


@dataclass(frozen=True)
class Source:
    """Data about to become a table: `chunks` starts a fresh stream of rows in their order."""

    columns: tuple[Column, ...]
    n_rows: int | None
    chunks: Callable[[], Iterator[Chunk]]
    origin: str  # whence the data came, for the comment on the table
    notes: tuple[str, ...] = ()  # values that were not read as written


def check_column_count(n_columns: int, where: str) -> None:
    """Refuse more columns than a table can have, before any row is looked at."""
    if n_columns > MOST_COLUMNS:
        raise InvalidData(
            f"{where}: expected at most {MOST_COLUMNS} columns, got {n_columns}",
            hint="A table of PostgreSQL has no more. Numbers that belong together can be one array: easeml load npy.",
        )


def check_column_names(names: Sequence[str], where: str) -> None:
    """Refuse names that PostgreSQL cannot store unchanged; `where` (file, line) opens the message."""
    if not names:
        raise InvalidData(f"{where}: no columns")
    check_column_count(len(names), where)
    for position, name in enumerate(names, 1):
        if not name:
            raise InvalidData(f"{where}: column {position} has no name")
        if len(name.encode()) > MAX_NAME_BYTES or "\0" in name:
            raise InvalidData(
                f"{where}: column name {name[:40]!r}… cannot be a name in PostgreSQL",
                hint=f"At most {MAX_NAME_BYTES} bytes, none of them zero.",
            )
    for first, second in pairwise(sorted(names)):
        if first == second:
            raise InvalidData(f"{where}: the column name {first!r} stands there twice")


def rows_per_chunk(row_bytes: int) -> int:
    """Return how many rows of this size make one chunk; at least one."""
    return max(1, CHUNK_BYTES // max(1, row_bytes))


def chunks_of_arrays(arrays: Sequence[NDArray[Any]]) -> Iterator[Chunk]:
    """Cut arrays that lie in memory, all (n_rows, …), into chunks."""
    n_rows = len(arrays[0])
    step = rows_per_chunk(sum(array[:1].nbytes for array in arrays))
    for start in range(0, n_rows, step):
        yield [Values(array[start : start + step]) for array in arrays]
