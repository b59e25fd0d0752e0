"""CSV files: a first pass checks every row and infers the types, a second one streams the rows.

So an error in a file is reported, with its line, before anything is written. Types, the first that holds for every
value of a column: boolean (true, false, t, f), bigint, double precision, numeric (decimals of more than 17 digits),
date, timestamp without and with time zone (ISO 8601), text. Whole numbers with a leading zero or plus, or with more
digits than the type keeps, stay text: they are codes, and no digit is silently lost. An empty field (quoted or not) is
NULL, and so are `NA` and the like in columns whose other fields are not texts (a note says so); blank lines are
skipped, as in most readers. Where fields are written as in `a, b`, the space belongs to the delimiter (a note says so).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from easeml_loaders.csv_types import ALIASES, EPOCH, FIELD_TYPES, GUESSES, NULL_WORDS, FieldType
from easeml_loaders.files import MOST_LINE_BYTES, lines_of, opened
from easeml_loaders.source import (
    CHUNK_BYTES,
    Chunk,
    Column,
    Progress,
    Source,
    Values,
    check_column_count,
    check_column_names,
)
from easeml_plpy.server.errors import InvalidArgument, InvalidData

CHUNK_ROWS = 8192
SAMPLED_ROWS = 100
MOST_FIELDS = 4_000_000  # of a record, delimiters within quotes included; a table has 1,600 columns


@dataclass(frozen=True)
class CsvFile:
    """A file and how to read it."""

    path: Path
    delimiter: str
    nulls: frozenset[str]
    is_spaced: bool = False  # a space after each delimiter belongs to it


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
    """Read the whole file once: check it and determine each column's type.

    `types` (column: type) are the user's; `table_types`, those of a table to append to, hold for the other columns.
    `progress` is called during this first pass, without a total.
    """
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise InvalidArgument(f"the delimiter must be one character, got {delimiter!r}")
    file = CsvFile(path, delimiter, frozenset({"", *nulls}))
    file = replace(file, is_spaced=_is_spaced(file))
    header = read_header(file)
    declared = _declared_types(header, types or {}, path)
    spelled = {name: ALIASES.get(kind, kind) for name, kind in (table_types or {}).items()}
    settled_names = {name: kind for name, kind in spelled.items() if kind in FIELD_TYPES}
    settled, n_rows = settled_types(file, header, settled_names | declared, progress)
    columns = tuple(Column(column.name, column.element) for column in settled)
    spaced = [f"{path}: fields begin with a space, which is left out"] if file.is_spaced else []
    notes = (*spaced, *(note for column in settled if (note := column.note())))
    return Source(columns, n_rows, partial(_chunks, file, settled), str(path), notes)


def _declared_types(header: Sequence[str], types: Mapping[str, str], path: Path) -> dict[str, str]:
    declared = {name: ALIASES.get(kind.lower(), kind.lower()) for name, kind in types.items()}
    for name, kind in declared.items():
        if name not in header:
            raise InvalidArgument(f"no column {name!r} in {path}", hint=f"It holds: {', '.join(header)}")
        if kind not in FIELD_TYPES:
            raise InvalidArgument(f"type {kind!r} is not known", hint=f"Types: {', '.join(FIELD_TYPES)}")
    return declared


def read_header(file: CsvFile) -> list[str]:
    """Return the column names; refuse them if PostgreSQL could not distinguish them."""
    with opened(file.path) as stream:
        for line, row in _records(file, stream):
            _check_delimiter(file, row)
            check_column_names(row, f"{file.path}, line {line}")
            return row
    raise InvalidData(f"{file.path}: empty, expected a header row")


def _is_spaced(file: CsvFile) -> bool:
    """Return whether all names after the first begin with a space, or all fields after the first of the first rows."""
    with opened(file.path) as stream:
        records = _records(file, stream)
        first = [row for _, row in islice(records, 1)]
        for row in first:
            check_column_count(len(row), f"{file.path}, the header")
        sampled = [row[1:] for row in (*first, *(row for _, row in islice(records, SAMPLED_ROWS - 1)))]
    header, rows = sampled[:1], sampled[1:]
    return file.delimiter != " " and any(
        bool(part) and all(row and all(field.startswith(" ") for field in row) for row in part)
        for part in (header, rows)
    )


def _check_delimiter(file: CsvFile, header: Sequence[str]) -> None:
    """Refuse a header that is one name with another common delimiter in it."""
    seen = next((mark for mark in ";\t|" if mark in header[0]), None) if len(header) == 1 else None
    if seen is not None:
        shown = "tab" if seen == "\t" else f"'{seen}'"
        raise InvalidData(
            f"{file.path}: expected columns separated by {file.delimiter!r}, got one column {header[0][:60]!r}",
            hint=f"Give --delimiter {shown}.",
        )


def _records(file: CsvFile, stream: IO[bytes]) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, fields) of each record that is not blank."""
    csv.field_size_limit(max(csv.field_size_limit(), MOST_LINE_BYTES))
    record = _Record()
    reader = csv.reader(
        _lines(file, stream, record), delimiter=file.delimiter, strict=True, skipinitialspace=file.is_spaced
    )
    try:
        for row in reader:
            record.n_bytes = record.n_marks = 0
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise InvalidData(f"{file.path}, line {reader.line_num}: {error}") from error


@dataclass
class _Record:
    """The lines of a record so far: a quoted field may span lines, and an unclosed quote spans all that follow."""

    n_bytes: int = 0
    n_marks: int = 0


def _lines(file: CsvFile, stream: IO[bytes], record: _Record) -> Iterator[str]:
    """Yield decoded lines with their ends; a byte order mark at the start is no part of the first name."""
    path, mark = file.path, file.delimiter.encode()
    for number, line in enumerate(lines_of(stream, path), 1):
        record.n_bytes += len(line)
        record.n_marks += line.count(mark)
        if record.n_bytes > MOST_LINE_BYTES or record.n_marks > MOST_FIELDS:
            raise InvalidData(
                f"{path}, line {number}: a record of more than {MOST_LINE_BYTES} bytes or {MOST_FIELDS} fields",
                hint="A quote that is never closed makes one record of all lines that follow.",
            )
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


class _Settling:
    """A column during the first pass: the types that all its fields so far may have, and its words for NULL."""

    def __init__(self, name: str, given_type: str | None) -> None:
        self.name, self.known = name, given_type
        self._guesses: tuple[str, ...] = GUESSES if given_type is None else (given_type,)
        self._has_values = given_type is not None
        self._words: Counter[str] = Counter()

    def observe(self, file: CsvFile, batch: Rows, i: int, fields: Sequence[str]) -> None:
        """Narrow the types down to those of a batch; check a type that was given."""
        self._words.update(field for field in fields if field in NULL_WORDS)
        present = [field for field in fields if field not in file.nulls and field not in NULL_WORDS]
        self._has_values = self._has_values or bool(present)
        if self.known is not None:
            _check_declared(file, batch, self.name, i, self.known)
        elif self._guesses != ("text",):
            self._guesses = tuple(kind for kind in self._guesses if _is_all(kind, present))

    def settled(self, file: CsvFile) -> SettledColumn:
        """Return the settled column."""
        element = self._guesses[0] if self._has_values else "text"
        words = (
            Counter() if element == "text" else Counter({w: n for w, n in self._words.items() if w not in file.nulls})
        )
        return SettledColumn(self.name, element, file.nulls | words.keys(), words)


@dataclass(frozen=True)
class SettledColumn:
    """A column after the first pass: its type, the words that mean NULL, and which of them the user did not name."""

    name: str
    element: str
    nulls: frozenset[str]
    words: Counter[str]

    def note(self) -> str | None:
        """Return a note that names the words read as NULL without a request, or None."""
        if not self.words:
            return None
        words = ", ".join(f"{word!r} ({n})" for word, n in self.words.most_common())
        return f"column {self.name!r} is {self.element}: {words} read as NULL; --types '{self.name}=text' keeps them"


def settled_types(
    file: CsvFile, header: Sequence[str], given_types: Mapping[str, str], progress: Progress | None
) -> tuple[list[SettledColumn], int]:
    """Return the columns over the whole file, and the number of rows; check the types that were given."""
    columns = [_Settling(name, given_types.get(name)) for name in header]
    n_rows = 0
    for batch in _batches(file):
        for i, fields in enumerate(zip(*batch.rows, strict=True)):
            columns[i].observe(file, batch, i, fields)
        n_rows += len(batch.rows)
        if progress is not None:
            progress(n_rows, None)
    return [column.settled(file) for column in columns], n_rows


def _is_all(element: str, fields: Sequence[str]) -> bool:
    """Return whether every field can be guessed to be of this type."""
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
    nulls = file.nulls if element == "text" else file.nulls | NULL_WORDS
    if _holds(kind, kind.declared, [row[i] for row in batch.rows if row[i] not in nulls]):
        return
    for line, row in zip(batch.lines, batch.rows, strict=True):
        if row[i] not in nulls and not _holds(kind, kind.declared, [row[i]]):
            hint = "Times are written as in 2030-12-31 23:59:59+01." if kind.null_stand_in == EPOCH else None
            message = f"{file.path}, line {line}: column {name!r} is {element}, got {row[i][:60]!r}"
            raise InvalidData(message, hint=hint)


def _chunks(file: CsvFile, columns: Sequence[SettledColumn]) -> Iterator[Chunk]:
    for batch in _batches(file):
        fields_by_column = zip(*batch.rows, strict=True)
        yield [_values(file, column, fields) for column, fields in zip(columns, fields_by_column, strict=True)]


def _values(file: CsvFile, column: SettledColumn, fields: Sequence[str]) -> Values:
    kind = FIELD_TYPES[column.element]
    is_null = np.fromiter(map(column.nulls.__contains__, fields), np.bool_, len(fields))
    if is_null.any():
        fields = [kind.null_stand_in if field in column.nulls else field for field in fields]
    try:
        return Values(kind.parse(fields), is_null if is_null.any() else None)
    except ValueError as error:
        raise InvalidData(f"{file.path} changed while it was being read") from error
