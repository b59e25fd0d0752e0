"""CSV files: a first pass checks every row and infers the types, a second one streams the rows.

So whatever is wrong with a file is said, with its line, before anything is written. Types, the first that
holds for every value of a column: boolean (true, false, t, f), bigint, double precision, text. Whole numbers
with a leading zero or plus, or with more digits than the type keeps, stay text: they are codes, and no digit
is lost unasked. An empty field (quoted or not) is NULL; blank lines are skipped, as in most readers.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from easeml_loaders.files import opened
from easeml_loaders.source import CHUNK_BYTES, Chunk, Column, Progress, Source, Values, check_column_names
from easeml_plpy.errors import InvalidArgument, InvalidData

CHUNK_ROWS = 8192
MAX_FIELD_CHARACTERS = 64 * 1024 * 1024  # a quote that is never closed should not swallow the whole file
TRUE_WORDS = frozenset({"true", "t", "yes", "y", "on", "1"})


def _parse_whole(low: int, high: int, fields: Sequence[str]) -> NDArray[Any]:
    numbers = list(map(int, fields))
    if numbers and (min(numbers) < low or max(numbers) > high):
        raise ValueError("out of range")
    return np.array(numbers, np.int64)


def _parse_real(dtype: str, fields: Sequence[str]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        numbers = np.array(list(map(float, fields)), np.float64).astype(dtype)
    is_infinite = np.isinf(numbers)
    if is_infinite.any() and any("n" not in fields[i].lower() for i in np.flatnonzero(is_infinite).tolist()):
        raise ValueError("out of range")
    return numbers


def _parse_boolean(fields: Sequence[str]) -> NDArray[Any]:
    return np.fromiter((field.strip().lower() in TRUE_WORDS for field in fields), np.bool_, len(fields))


def _parse_text(fields: Sequence[str]) -> list[bytes]:
    return [field.encode() for field in fields]


@dataclass(frozen=True)
class FieldType:
    """How fields of one type look and what they become; `parse` raises ValueError beyond the type's range."""

    element: str
    inferred: re.Pattern[str] | None  # what a field must look like for the type to be guessed; None: never guessed
    declared: re.Pattern[str]  # what it may look like where the user names the type
    parse: Callable[[Sequence[str]], NDArray[Any] | list[bytes]]
    null_stand_in: str


WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
REAL = re.compile(r"\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf|infinity)\s*", re.IGNORECASE)
ANYTHING = re.compile(r".*", re.DOTALL)
CAREFUL_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
CAREFUL_REAL = re.compile(
    r"-?(?!0[0-9]|[0-9]{17,}$)(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf|infinity)",
    re.IGNORECASE,
)
FIELD_TYPES = {
    kind.element: kind
    for kind in (  # in the order in which they are tried
        FieldType(
            "boolean",
            re.compile(r"true|false|t|f", re.IGNORECASE),
            re.compile(r"\s*(?:true|false|t|f|yes|no|y|n|on|off|1|0)\s*", re.IGNORECASE),
            _parse_boolean,
            "f",
        ),
        FieldType("bigint", CAREFUL_WHOLE, WHOLE, partial(_parse_whole, -(2**63), 2**63 - 1), "0"),
        FieldType("integer", None, WHOLE, partial(_parse_whole, -(2**31), 2**31 - 1), "0"),
        FieldType("smallint", None, WHOLE, partial(_parse_whole, -(2**15), 2**15 - 1), "0"),
        FieldType("double precision", CAREFUL_REAL, REAL, partial(_parse_real, "f8"), "0"),
        FieldType("real", None, REAL, partial(_parse_real, "f4"), "0"),
        FieldType("text", ANYTHING, ANYTHING, _parse_text, ""),
    )
}
GUESSES = tuple(kind.element for kind in FIELD_TYPES.values() if kind.inferred is not None)
ALIASES = {"float": "double precision", "float8": "double precision", "float4": "real", "int": "integer"}
ALIASES |= {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "bool": "boolean",
    "varchar": "text",
    "character varying": "text",
}


@dataclass(frozen=True)
class CsvFile:
    """A file and how to read it."""

    path: Path
    delimiter: str
    nulls: frozenset[str]


@dataclass(frozen=True)
class Rows:
    """Some rows in order, each with the line that it ends on."""

    lines: list[int]
    rows: list[list[str]]


def csv_source(
    path: Path,
    *,
    delimiter: str = ",",
    nulls: Iterable[str] = (),
    types: Mapping[str, str] | None = None,
    table_types: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Source:
    """Read the whole file once: check it and settle each column's type.

    `types` (column: type) are the user's; `table_types`, those of a table to append to, hold for the other
    columns. `progress` hears of this first pass, without a total.
    """
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise InvalidArgument(f"the delimiter must be one character, got {delimiter!r}")
    file = CsvFile(path, delimiter, frozenset({"", *nulls}))
    header = read_header(file)
    declared = _declared_types(header, types or {}, path)
    spelled = {name: ALIASES.get(kind, kind) for name, kind in (table_types or {}).items()}
    known = {name: kind for name, kind in spelled.items() if kind in FIELD_TYPES}
    elements, n_rows = settled_types(file, header, known | declared, progress)
    columns = tuple(Column(name, element) for name, element in zip(header, elements, strict=True))
    return Source(columns, n_rows, partial(_chunks, file, columns), str(path))


def _declared_types(header: Sequence[str], types: Mapping[str, str], path: Path) -> dict[str, str]:
    declared = {name: ALIASES.get(kind.lower(), kind.lower()) for name, kind in types.items()}
    for name, kind in declared.items():
        if name not in header:
            raise InvalidArgument(f"no column {name!r} in {path}", hint=f"It holds: {', '.join(header)}")
        if kind not in FIELD_TYPES:
            raise InvalidArgument(f"type {kind!r} is not known", hint=f"Types: {', '.join(FIELD_TYPES)}")
    return declared


def read_header(file: CsvFile) -> list[str]:
    """Return the column names; refuse them where PostgreSQL could not keep them apart."""
    with opened(file.path) as stream:
        for line, row in _records(file, stream):
            check_column_names(row, f"{file.path}, line {line}")
            return row
    raise InvalidData(f"{file.path}: empty, expected a header row")


def _records(file: CsvFile, stream: IO[bytes]) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, fields) of each record that is not blank."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARACTERS))
    reader = csv.reader(_lines(file.path, stream), delimiter=file.delimiter, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise InvalidData(f"{file.path}, line {reader.line_num}: {error}") from error


def _lines(path: Path, stream: IO[bytes]) -> Iterator[str]:
    """Yield decoded lines with their ends; a byte order mark at the start is no part of the first name."""
    for number, line in enumerate(stream, 1):
        if b"\0" in line:
            raise InvalidData(f"{path}, line {number}: a zero byte, which PostgreSQL's text cannot hold")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidData(
                f"{path}, line {number}: byte {error.start + 1} is not UTF-8",
                hint=f"Convert the file first, for example: iconv -f LATIN1 -t UTF-8 {path.name}",
            ) from error


def _batches(file: CsvFile) -> Iterator[Rows]:
    """Yield the rows below the header in batches bounded in rows and in characters."""
    with opened(file.path) as stream:
        records = _records(file, stream)
        _, header = next(records)
        batch, n_characters = Rows([], []), 0
        for line, row in records:
            if len(row) != len(header):
                raise InvalidData(f"{file.path}, line {line}: expected {len(header)} fields, got {len(row)}")
            batch.lines.append(line)
            batch.rows.append(row)
            n_characters += sum(map(len, row))
            if len(batch.rows) >= CHUNK_ROWS or n_characters >= CHUNK_BYTES:
                yield batch
                batch, n_characters = Rows([], []), 0
        if batch.rows:
            yield batch


def settled_types(
    file: CsvFile, header: Sequence[str], known: Mapping[str, str], progress: Progress | None
) -> tuple[list[str], int]:
    """Return the type of each column over the whole file, and the number of rows; check the types that are known."""
    guesses = [(known[name],) if name in known else GUESSES for name in header]
    has_values = [name in known for name in header]
    n_rows = 0
    for batch in _batches(file):
        for i, fields in enumerate(zip(*batch.rows, strict=True)):
            present = [field for field in fields if field not in file.nulls]
            has_values[i] = has_values[i] or bool(present)
            if header[i] in known:
                _check_declared(file, batch, header[i], i, known[header[i]])
            elif guesses[i] != ("text",):
                guesses[i] = tuple(kind for kind in guesses[i] if _is_all(kind, present))
        n_rows += len(batch.rows)
        if progress is not None:
            progress(n_rows, None)
    return [kinds[0] if filled else "text" for kinds, filled in zip(guesses, has_values, strict=True)], n_rows


def _is_all(element: str, fields: Sequence[str]) -> bool:
    """Say whether every field can be guessed to be of this type."""
    kind = FIELD_TYPES[element]
    return kind.inferred is not None and _holds(kind, kind.inferred, fields)


def _holds(kind: FieldType, pattern: re.Pattern[str], fields: Sequence[str]) -> bool:
    if kind.element == "text":
        return True
    if not all(map(pattern.fullmatch, fields)):
        return False
    try:
        kind.parse(fields)
    except ValueError:
        return False
    return True


def _check_declared(file: CsvFile, batch: Rows, name: str, i: int, element: str) -> None:
    """Refuse the first field that is not of the type the user (or the table) gave, with its line."""
    kind = FIELD_TYPES[element]
    if _holds(kind, kind.declared, [row[i] for row in batch.rows if row[i] not in file.nulls]):
        return
    for line, row in zip(batch.lines, batch.rows, strict=True):
        if row[i] not in file.nulls and not _holds(kind, kind.declared, [row[i]]):
            raise InvalidData(f"{file.path}, line {line}: column {name!r} is {element}, got {row[i][:60]!r}")


def _chunks(file: CsvFile, columns: Sequence[Column]) -> Iterator[Chunk]:
    for batch in _batches(file):
        fields_by_column = zip(*batch.rows, strict=True)
        yield [_values(file, column, fields) for column, fields in zip(columns, fields_by_column, strict=True)]


def _values(file: CsvFile, column: Column, fields: Sequence[str]) -> Values:
    kind = FIELD_TYPES[column.element]
    is_null = np.fromiter(map(file.nulls.__contains__, fields), np.bool_, len(fields))
    if is_null.any():
        fields = [kind.null_stand_in if field in file.nulls else field for field in fields]
    try:
        return Values(kind.parse(fields), is_null if is_null.any() else None)
    except ValueError as error:
        raise InvalidData(f"{file.path} changed while it was being read") from error
