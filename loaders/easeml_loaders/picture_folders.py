"""Folders of pictures with their labels, or with their output pictures, as rows of a task.

Unpacking a picture takes longer than sending it, so several processes read a large folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from easeml_loaders.forked import can_fork, read_in_processes
from easeml_loaders.picture_labels import Skipped, Wanted, is_known
from easeml_loaders.pictures import MODES, Place, outputs_of, pixels_of, strictly
from easeml_loaders.small_pngs import may_unpack, unpacked
from easeml_loaders.source import CHUNK_BYTES, Chunk, Column, Source, Values
from easeml_plpy.server.errors import InvalidArgument, InvalidData

MANY_PICTURES = 500
"""From here on, further processes pay: each takes some milliseconds to start."""
MOST_PROCESSES = 8
PART_BYTES = CHUNK_BYTES // 4
MOST_FILE_BYTES = 1 << 16
"""Largest file of a picture that is unpacked together with others."""
TOGETHER_BYTES = 8 << 20
"""Bytes of files that are unpacked together: a folder of large files of small pictures would fill the memory."""

Names: TypeAlias = Sequence[tuple[str, str]]


class Pictures(NamedTuple):
    """The pixels of pictures (n, n_bytes); and the errors of some of them, by their places."""

    pixels: NDArray[np.uint8]
    problems: Mapping[int, str]


Read: TypeAlias = Sequence[Pictures]
"""The pictures of examples, then the output pictures, if there are any."""


def picture_source(folder: Path, labels: Names, form: Wanted, skipped: Skipped) -> Source:
    """Return pictures with their labels, or with their output pictures, as columns input and output."""
    for pictures in (form, form.output or form):
        if pictures.shape[2] not in MODES:
            raise InvalidArgument(f"pictures have {', '.join(map(str, MODES))} channels, not {pictures.shape[2]}")
    element = "bytea" if form.output is not None else "text" if form.classes is not None else "double precision"
    columns = (Column("input", "bytea"), Column("output", element))
    return Source(columns, len(labels), lambda: _chunks(folder, labels, form, skipped), f"pictures in {folder}")


def _chunks(folder: Path, labels: Names, form: Wanted, skipped: Skipped) -> Iterator[Chunk]:
    n_rows = max(1, PART_BYTES // sum(_sizes(form)))
    parts = [labels[start : start + n_rows] for start in range(0, len(labels), n_rows)]
    for part, read in zip(parts, _read_all(folder, parts, form), strict=True):
        kept = list(_kept(part, read, form, skipped))
        if not kept:
            continue
        pixels = [Values(pictures.pixels if len(kept) == len(part) else pictures.pixels[kept]) for pictures in read]
        if form.output is None:
            pixels.append(outputs_of([part[place][1] for place in kept], form))
        yield pixels


def _kept(part: Names, read: Read, form: Wanted, skipped: Skipped) -> Iterator[int]:
    """Yield the places of examples that can be fed; count the others as skipped."""
    problems = {place: problem for pictures in reversed(read) for place, problem in pictures.problems.items()}
    for place, named in enumerate(part):
        if place in problems:
            skipped.add(InvalidData(problems[place]))
        elif form.output is not None or is_known(*named, form, skipped):
            yield place


def _read_all(folder: Path, parts: Sequence[Names], form: Wanted) -> Iterator[Read]:
    """Yield the pictures of each part, in order; a few parts are read ahead."""
    n_processes = min(os.cpu_count() or 1, MOST_PROCESSES, len(parts))
    if n_processes < 2 or sum(map(len, parts)) < MANY_PICTURES or not can_fork():
        yield from (read_part(folder, part, form) for part in parts)
        return
    sizes = _sizes(form)

    def read(number: int, memory: NDArray[np.uint8]) -> list[Mapping[int, str]]:
        return _read_into(_arrays(memory, len(parts[number]), sizes), folder, parts[number], form)

    results = read_in_processes(len(parts), n_processes, len(parts[0]) * sum(sizes), read)
    for part, (problems, memory) in zip(parts, results, strict=True):
        arrays = _arrays(memory, len(part), sizes)
        yield [
            Pictures(pixels.copy(), named)
            for pixels, named in zip(arrays, cast("list[Mapping[int, str]]", problems), strict=True)
        ]


def read_part(folder: Path, part: Names, form: Wanted) -> Read:
    """Return the contents of the files of a part, or their errors."""
    arrays = [np.empty((len(part), size), np.uint8) for size in _sizes(form)]
    return list(map(Pictures, arrays, _read_into(arrays, folder, part, form)))


def _sizes(form: Wanted) -> list[int]:
    """Return how many bytes each picture of an example has."""
    return [int(np.prod(pictures.shape)) for pictures in (form, form.output) if pictures is not None]


def _arrays(memory: NDArray[np.uint8], n_rows: int, sizes: Sequence[int]) -> list[NDArray[np.uint8]]:
    """Return the pixels of a part, an array (n_rows, size) for each picture of an example, that lie in a memory."""
    ends = n_rows * np.cumsum([0, *sizes])
    return [memory[ends[k] : ends[k + 1]].reshape(n_rows, size) for k, size in enumerate(sizes)]


def _read_into(arrays: Sequence[NDArray[np.uint8]], folder: Path, part: Names, form: Wanted) -> list[Mapping[int, str]]:
    """Write the pixels of the files of a part, and return the errors of some of them, by their places."""
    place = Place(folder)
    with strictly():
        problems = [_read_pictures(arrays[0], place, [name for name, _ in part], form)]
        if form.output is not None:
            problems.append(_read_pictures(arrays[1], place, [name for _, name in part], form.output))
    return problems


def _read_pictures(pixels: NDArray[np.uint8], place: Place, names: Sequence[str], form: Wanted) -> Mapping[int, str]:
    """Read pictures: small PNGs are unpacked together, and Pillow reads all others. Unreadable pictures are zero."""
    is_known = np.zeros(len(names), np.bool_)
    if may_unpack(len(names), form.shape):
        for some, contents in _contents(place, names):
            pixels[some], is_known[some] = unpacked(contents, form.shape)
    problems: dict[int, str] = {}
    for k in np.flatnonzero(~is_known).tolist():
        pixels[k] = 0
        try:
            pixels[k] = np.frombuffer(pixels_of(place.of(names[k]), form), np.uint8)
        except InvalidData as error:
            problems[k] = str(error)
    return problems


def _contents(place: Place, names: Sequence[str]) -> Iterator[tuple[slice, list[bytes]]]:
    """Yield the contents of small files in order, as many at once as memory holds, with their places."""
    contents: list[bytes] = []
    start = n_bytes = 0
    for name in names:
        contents.append(place.content(name, MOST_FILE_BYTES))
        n_bytes += len(contents[-1])
        if n_bytes >= TOGETHER_BYTES:
            yield slice(start, start + len(contents)), contents
            start, n_bytes, contents = start + len(contents), 0, []
    if contents:
        yield slice(start, start + len(contents)), contents
