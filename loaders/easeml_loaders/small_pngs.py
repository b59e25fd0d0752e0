"""Many small PNGs of one size, unpacked together: a library takes longer to begin with each than to unpack it.

Only plain files are taken: 8 bits, grey or colours as wanted, not interlaced, nothing damaged and nothing left over.
All others are left to Pillow, which also says what is wrong with them. The format is that of the W3C's specification of
PNG: chunks with checksums, and lines of pixels of which each names the filter that undoes it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOUR_OF = {1: 0, 3: 2, 4: 6}
"""The colour type of a header, by channels."""
MOST_VALUES = 4096
"""Of a picture: larger ones take Pillow less time than their lines one by one take here."""
FEWEST = 64
"""Pictures that make it worth the while."""
IGNORED = (b"tEXt", b"zTXt", b"iTXt", b"tIME", b"pHYs", b"gAMA", b"cHRM", b"sRGB", b"bKGD")
"""Chunks that say nothing about the pixels."""
NONE, SUB, UP, AVERAGE, PAETH = range(5)

Bytes = NDArray[np.uint8]


def may_unpack(n_files: int, shape: tuple[int, int, int]) -> bool:
    """Say whether so many pictures of a shape are worth the while."""
    height, width, channels = shape
    return n_files >= FEWEST and height * width * channels <= MOST_VALUES and channels in COLOUR_OF


def unpacked(files: Sequence[bytes], shape: tuple[int, int, int]) -> list[bytes | None]:
    """Return the pixels of each file, row by row, or None for what Pillow has to read.

    shape: height, width and channels that all of them must have.
    """
    height, width, channels = shape
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR_OF[channels], 0, 0, 0)
    n_bytes = height * (1 + width * channels)
    lines = [_lines(file, header, n_bytes) for file in files]
    found = [line for line in lines if line is not None]
    table = np.frombuffer(b"".join(found), np.uint8).reshape(len(found), height, 1 + width * channels)
    is_known: list[bool] = np.all(table[:, :, 0] <= PAETH, axis=1).tolist()
    pixels = iter(zip(is_known, _unfiltered(table, channels), strict=True))
    answers: list[bytes | None] = []
    for line in lines:
        is_fine, values = (False, None) if line is None else next(pixels)
        answers.append(values.tobytes() if is_fine and values is not None else None)
    return answers


def _lines(file: bytes, header: bytes, n_bytes: int) -> bytes | None:
    """Return the lines of a plain file, each behind the number of its filter; None for any other."""
    if file[:8] != SIGNATURE:
        return None
    place, packed, is_first = 8, [], True
    while place + 12 <= len(file):
        length = int.from_bytes(file[place : place + 4], "big")
        kind, end = file[place + 4 : place + 8], place + 8 + length
        if end + 4 > len(file) or zlib.crc32(file[place + 4 : end]) != int.from_bytes(file[end : end + 4], "big"):
            return None
        if is_first != (kind == b"IHDR") or (is_first and file[place + 8 : end] != header):
            return None
        if kind == b"IDAT":
            packed.append(file[place + 8 : end])
        elif kind == b"IEND":
            return _inflated(packed[0] if len(packed) == 1 else b"".join(packed), n_bytes)
        elif not is_first and kind not in IGNORED:
            return None
        place, is_first = end + 4, False
    return None


def _inflated(packed: bytes, n_bytes: int) -> bytes | None:
    """Return so many bytes, unless there are more or fewer: what would be very many is not unpacked."""
    inflating = zlib.decompressobj()
    try:
        lines = inflating.decompress(packed, n_bytes + 1)
    except zlib.error:
        return None
    is_whole = len(lines) == n_bytes and inflating.eof and not inflating.unused_data
    return lines if is_whole else None


def _unfiltered(table: Bytes, channels: int) -> Bytes:
    """Return the pixels (n, height, width * channels) of lines (n, height, 1 + width * channels)."""
    n_files, height, n_line = table.shape
    pixels = np.zeros((n_files, height + 1, n_line - 1 + channels), np.uint8)  # a line above, and a pixel to the left
    for above, line in pairwise(range(height + 1)):
        kinds = table[:, above, 0]
        for kind in np.unique(kinds):
            some = kinds == kind
            raw, up = table[some, above, 1:], pixels[some, above]
            pixels[some, line, channels:] = _line(int(kind), raw, up, channels)
    return pixels[:, 1:, channels:]


def _line(kind: int, raw: Bytes, up: Bytes, channels: int) -> Bytes:
    """Undo a filter of a line in many files at once; `up` has the lines above, with a pixel to the left of them."""
    if kind == SUB:
        steps = raw.reshape(len(raw), -1, channels)
        return np.cumsum(steps, axis=1, dtype=np.uint8).reshape(raw.shape)
    if kind == UP:
        return raw + up[:, channels:]
    if kind in (AVERAGE, PAETH):
        return _one_after_another(kind, raw, up, channels)
    return raw


def _one_after_another(kind: int, raw: Bytes, up: Bytes, channels: int) -> Bytes:
    """Undo a filter whose pixels need the one to their left."""
    values, above = np.ascontiguousarray(raw.T).astype(np.int16), np.ascontiguousarray(up.T).astype(np.int16)
    found = np.zeros_like(above)  # (pixels, files): each step reads whole lines of memory
    for place in range(0, len(values), channels):
        left, here = found[place : place + channels], above[place + channels : place + 2 * channels]
        corner = above[place : place + channels]
        guess = (left + here) >> 1 if kind == AVERAGE else _paeth(left, here, corner)
        found[place + channels : place + 2 * channels] = (values[place : place + channels] + guess) & 255
    return found[channels:].T.astype(np.uint8)


def _paeth(left: NDArray[np.int16], up: NDArray[np.int16], corner: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return of each place the neighbour that is nearest to left + up - corner; of equal ones the first named."""
    to_left, to_up = np.abs(up - corner), np.abs(left - corner)
    to_corner = np.abs(left + up - 2 * corner)
    found: NDArray[np.int16] = np.where(
        (to_left <= to_up) & (to_left <= to_corner), left, np.where(to_up <= to_corner, up, corner)
    )
    return found
