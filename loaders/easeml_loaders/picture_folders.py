"""Folders of pictures with their labels, or with the pictures that come out, as rows of a task.

Unpacking a small picture takes ten times as long as sending it, so that several processes read a large folder.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeAlias

import numpy as np

from easeml_loaders.pictures import MODES, Place, Skipped, Wanted, is_known, outputs_of, pixels_of, strictly
from easeml_loaders.small_pngs import may_unpack, unpacked
from easeml_loaders.source import CHUNK_BYTES, Chunk, Column, Source, Values
from easeml_plpy.errors import InvalidArgument, InvalidData

MANY_PICTURES = 5_000
"""From so many on further processes pay: each takes a third of a second to begin."""
MOST_PROCESSES = 8
PART_BYTES = CHUNK_BYTES // 4
MOST_FILE_BYTES = 1 << 16
"""Of a picture that is unpacked together with others."""
TOGETHER_BYTES = 8 << 20
"""Of the files that are unpacked together: a folder of large files of small pictures would fill the memory."""

Names: TypeAlias = Sequence[tuple[str, str]]
Read: TypeAlias = "tuple[bytes, bytes] | str"
"""The pixels of a picture, and of the one that comes out, or what is wrong."""


def picture_source(folder: Path, labels: Names, wanted: Wanted, skipped: Skipped) -> Source:
    """Return pictures with their labels, or with the pictures that come out, as columns input and output."""
    for each in (wanted, wanted.output or wanted):
        if each.shape[2] not in MODES:
            raise InvalidArgument(f"pictures have {', '.join(map(str, MODES))} channels, not {each.shape[2]}")
    element = "bytea" if wanted.output is not None else "text" if wanted.classes is not None else "double precision"
    columns = (Column("input", "bytea"), Column("output", element))
    return Source(columns, len(labels), lambda: _chunks(folder, labels, wanted, skipped), f"pictures in {folder}")


def _chunks(folder: Path, labels: Names, wanted: Wanted, skipped: Skipped) -> Iterator[Chunk]:
    shapes = [each.shape for each in (wanted, wanted.output) if each is not None]
    n_rows = max(1, PART_BYTES // sum(map(int, map(np.prod, shapes))))
    parts = [labels[start : start + n_rows] for start in range(0, len(labels), n_rows)]
    for part, read in zip(parts, _read_all(folder, parts, wanted), strict=True):
        kept = [(found, label) for (name, label), found in _kept(part, read, wanted, skipped)]
        if kept:
            pixels = Values([found[0] for found, _ in kept])
            if wanted.output is not None:
                yield pixels, Values([found[1] for found, _ in kept])
            else:
                yield pixels, outputs_of([label for _, label in kept], wanted)


def _kept(
    part: Names, read: Sequence[Read], wanted: Wanted, skipped: Skipped
) -> Iterator[tuple[tuple[str, str], tuple[bytes, bytes]]]:
    """Yield what can be fed; count the rest as skipped."""
    for named, found in zip(part, read, strict=True):
        if isinstance(found, str):
            skipped.add(InvalidData(found))
        elif wanted.output is not None or is_known(*named, wanted, skipped):
            yield named, found


def _read_all(folder: Path, parts: Sequence[Names], wanted: Wanted) -> Iterator[list[Read]]:
    """Yield what the files of each part hold, in their order; a few parts are read ahead."""
    n_processes = min(os.cpu_count() or 1, MOST_PROCESSES, len(parts))
    if sum(map(len, parts)) < MANY_PICTURES or n_processes < 2:
        yield from (read_part(folder, part, wanted) for part in parts)
        return
    # Started afresh: a fork would share the connection to the server.
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
        ahead: deque[Future[list[Read]]] = deque()
        for part in parts:
            ahead.append(pool.submit(read_part, folder, part, wanted))
            if len(ahead) > 2 * n_processes:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def read_part(folder: Path, part: Names, wanted: Wanted) -> list[Read]:
    """Return what each file of a part holds, or what is wrong with it."""
    place = Place(folder)
    given = [_Picture(place, name) for name, _ in part]
    other = [_Picture(place, name) for _, name in part] if wanted.output is not None else []
    with strictly():
        inputs = _pixels(given, wanted)
        outputs = _pixels(other, wanted.output) if wanted.output is not None else [b""] * len(part)
    return [_both(one, two) for one, two in zip(inputs, outputs, strict=True)]


def _both(given: bytes | str, wanted: bytes | str) -> Read:
    """Return both pictures of an example, or what is wrong with the first that cannot be read."""
    if isinstance(given, str):
        return given
    return wanted if isinstance(wanted, str) else (given, wanted)


class _Picture:
    """A picture that is to be read: its file and what is in it, or what is wrong with its name."""

    def __init__(self, place: Place, name: str) -> None:
        self.problem, self.path = "", Path()
        try:
            self.path = place.of(name)
        except InvalidData as error:
            self.problem = str(error)

    def content(self) -> bytes:
        """Return the whole file of a small picture, and nothing of any other."""
        if self.problem:
            return b""
        try:
            with open(self.path, "rb", buffering=0) as file:
                content = file.read(MOST_FILE_BYTES + 1)
        except OSError:
            return b""
        return content if len(content) <= MOST_FILE_BYTES else b""

    def read(self, wanted: Wanted) -> bytes | str:
        """Have Pillow read it."""
        try:
            return self.problem or pixels_of(self.path, wanted)
        except InvalidData as error:
            return str(error)


def _pixels(pictures: Sequence[_Picture], wanted: Wanted) -> list[bytes | str]:
    """Return the pixels of pictures; small PNGs are unpacked together."""
    known: list[bytes | None] = []
    if may_unpack(len(pictures), wanted.shape):
        for contents in _contents(pictures):
            known += unpacked(contents, wanted.shape)
    else:
        known += [None] * len(pictures)
    return [picture.read(wanted) if pixels is None else pixels for picture, pixels in zip(pictures, known, strict=True)]


def _contents(pictures: Iterable[_Picture]) -> Iterator[list[bytes]]:
    """Yield what is in the files of pictures, in their order, so many at once that memory holds them."""
    contents: list[bytes] = []
    n_bytes = 0
    for picture in pictures:
        contents.append(picture.content())
        n_bytes += len(contents[-1])
        if n_bytes >= TOGETHER_BYTES:
            yield contents
            contents, n_bytes = [], 0
    if contents:
        yield contents
