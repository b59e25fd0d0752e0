"""The table of contents of a dump: which objects it holds, whose they are, and what each needs.

pg_restore --list prints names and owners without quotation marks, so that an owner could be taken for another. The file
itself gives the length of each string. This is the format of pg_dump (pg_backup_archiver.c, WriteToc), versions 1.14
(PostgreSQL 15) to 1.16 (17 and 18).
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from easeml_db.errors import InvalidData

OLDEST, NEWEST = (1, 14), (1, 16)
CUSTOM = 1
"""The format of one file; a directory and a tar keep each table in a file of its own."""


class Section(IntEnum):
    """When pg_restore makes an object."""

    NONE = 1
    PRE_DATA = 2
    DATA = 3
    POST_DATA = 4


@dataclass(frozen=True)
class Entry:
    """An object of a dump, or the rows of a table."""

    number: int
    kind: str
    tag: str
    section: Section
    schema: str
    owner: str
    needs: frozenset[int]
    """Numbers of other entries, and of objects that are not in the dump."""

    def __str__(self) -> str:
        return f"{self.kind} {self.schema}{'.' if self.schema else ''}{self.tag}"


def read_archive(path: Path) -> list[Entry]:
    """Return the entries of a dump in their order. Raises InvalidData for a file of another format."""
    try:
        with closing(_contents(path)) as file:
            return _Reader(file).entries()
    except (EOFError, KeyError, OSError, ValueError, tarfile.TarError) as error:
        raise InvalidData(f"{path} has no table of contents that this version can read", detail=str(error)) from error


def _contents(path: Path) -> BinaryIO:
    if path.is_dir():
        return (path / "toc.dat").open("rb")
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as archive, archive.extractfile("toc.dat") or BytesIO() as file:
            return BytesIO(file.read())
    return path.open("rb")


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        if self._bytes(5) != b"PGDMP":
            raise ValueError("it does not begin as a dump does")
        self._version = self._byte(), self._byte()
        self._byte()  # revision
        if not OLDEST <= self._version <= NEWEST:
            raise ValueError(f"its format is {self._version[0]}.{self._version[1]}")
        self._int_size, self._offset_size, self._format = self._byte(), self._byte(), self._byte()

    def entries(self) -> list[Entry]:
        (self._byte if self._version >= (1, 15) else self._int)()  # compression
        self._skip(self._int, 7)  # when it was made
        self._skip(self._text, 3)  # database, versions of server and pg_dump
        return [self._entry() for _ in range(self._int())]

    def _entry(self) -> Entry:
        number = self._int()
        self._int()  # whether it has rows
        self._skip(self._text, 2)  # its numbers in the catalogs
        tag, kind, section = self._text(), self._text(), Section(self._int())
        self._skip(self._text, 3)  # the statements
        schema = self._text()
        self._skip(self._text, 2)  # tablespace, access method
        if self._version >= (1, 16):
            self._int()  # kind of relation
        owner = self._text()
        self._text()  # whether it has oids
        needs = []
        while needed := self._text():
            needs.append(int(needed))
        if self._format == CUSTOM:
            self._bytes(1 + self._offset_size)  # where its rows begin
        else:
            self._text()  # the file of its rows
        return Entry(number, kind, tag, section, schema, owner, frozenset(needs))

    @staticmethod
    def _skip(read: Callable[[], object], n: int) -> None:
        for _ in range(n):
            read()

    def _bytes(self, n: int) -> bytes:
        found = self._file.read(n)
        if len(found) != n:
            raise EOFError("it ends too early")
        return found

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _int(self) -> int:
        is_negative, value = self._byte(), int.from_bytes(self._bytes(self._int_size), "little")
        return -value if is_negative else value

    def _text(self) -> str:
        length = self._int()
        return self._bytes(length).decode(errors="surrogateescape") if length > 0 else ""
