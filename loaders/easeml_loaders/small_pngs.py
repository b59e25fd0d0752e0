"""Many small PNGs of one size, unpacked together, because a library takes longer to start on each than to unpack it.

Measured with `easeml task feed` for 10,000 files: with Pillow alone it takes 2.1 times as long for greys of 28 by 28
(2.3 times the processor time), and 1.7 times (1.9) for colours of 32 by 32. So this decoder stays.

Only plain files are taken: 8 bits, grey or colours, not interlaced, nothing damaged and nothing left over.
All others are left to Pillow, which also says what is wrong with them. The format is that of the W3C's specification of
PNG: chunks with checksums, and lines of pixels of which each names the filter that undoes it. Pillow undoes the filters
of all pictures at once: one below the other they are one tall picture.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from easeml_loaders.pictures import MODES

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOUR_OF = {1: 0, 3: 2, 4: 6}
"""The colour type of a header, by channels."""
MOST_VALUES = 1 << 14
"""Of a picture: a larger one takes Pillow as long by itself."""
FEWEST = 64
"""The fewest pictures for which it pays."""
IGNORED = (b"tEXt", b"zTXt", b"iTXt", b"tIME", b"pHYs", b"gAMA", b"cHRM", b"sRGB", b"bKGD")
"""Chunks that say nothing about the pixels."""
LAST_FILTER = 4

Bytes = NDArray[np.uint8]


def may_unpack(n_files: int, shape: tuple[int, int, int]) -> bool:
    """Return whether unpacking a number of pictures of a shape together is worthwhile."""
    height, width, channels = shape
    return n_files >= FEWEST and height * width * channels <= MOST_VALUES and channels in COLOUR_OF


def unpacked(files: Sequence[bytes], shape: tuple[int, int, int]) -> tuple[Bytes, NDArray[np.bool_]]:
    """Return the pixels of each file, row by row: (n, height * width * channels). Also return which files were
    unpacked, (n,): the pixels of the others are zero, and Pillow must read those.

    shape: height, width and channels that all of them must have.
    """
    height, width, channels = shape
    n_line = 1 + width * channels
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, COLOUR_OF[channels], 0, 0, 0)
    begin = SIGNATURE + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    lines = [_lines(file, begin, height * n_line) for file in files]
    places = [place for place, line in enumerate(lines) if line is not None]
    filtered = np.frombuffer(b"".join(filter(None, lines)), np.uint8).reshape(len(places), height, n_line)
    pixels, is_known = np.zeros((len(files), height * width * channels), np.uint8), np.zeros(len(files), np.bool_)
    is_known[places] = (filtered[:, :, 0] <= LAST_FILTER).all(1)
    if is_known.any():
        pixels[is_known] = _unfiltered(filtered[is_known[places]], shape)
    return pixels, is_known


def _lines(file: bytes, begin: bytes, n_bytes: int) -> bytes | None:
    """Return the lines of a plain file, each behind the number of its filter; None for any other."""
    if not file.startswith(begin):
        return None
    place, packed = len(begin), b""
    while place + 12 <= len(file):
        kind = file[place + 4 : place + 8]
        end = place + 8 + int.from_bytes(file[place : place + 4], "big")
        if zlib.crc32(file[place + 4 : end]) != int.from_bytes(file[end : end + 4], "big") or end + 4 > len(file):
            return None
        if kind == b"IDAT":
            packed += file[place + 8 : end]
        elif kind == b"IEND":
            return _inflated(packed, n_bytes)
        elif kind not in IGNORED:
            return None
        place = end + 4
    return None


def _inflated(packed: bytes, n_bytes: int) -> bytes | None:
    """Return a number of bytes, or None if there are more or fewer, so that no oversized data is unpacked."""
    inflating = zlib.decompressobj()
    try:
        lines = inflating.decompress(packed, n_bytes + 1)
    except zlib.error:
        return None
    is_whole = len(lines) == n_bytes and inflating.eof and not inflating.unused_data
    return lines if is_whole else None


def _unfiltered(pictures: Bytes, shape: tuple[int, int, int]) -> Bytes:
    """Return the pixels (n, height * width * channels) of the lines (n, height, line) of pictures. A blank line is
    placed above each picture, because nothing is above its first line.
    """
    from PIL import Image

    height, width, channels = shape
    tall = np.zeros((len(pictures), height + 1, pictures.shape[2]), np.uint8)
    tall[:, 1:] = pictures
    stream = zlib.compress(tall.data, 0)
    mode, size = MODES[channels], (width, len(pictures) * (height + 1))
    pixels = np.frombuffer(Image.frombytes(mode, size, stream, "zip", mode, 0).tobytes(), np.uint8).reshape(
        len(pictures), height + 1, -1
    )
    return pixels[:, 1:].reshape(len(pictures), -1)
