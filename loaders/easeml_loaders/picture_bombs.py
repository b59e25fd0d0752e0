"""Picture files that are made to fill the memory or to take minutes: they are refused before they are decoded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from easeml_loaders.source import CHUNK_BYTES
from easeml_plpy.server.errors import InvalidData

MOST_PIXELS = 1 << 26
BOMB_PIXELS, BOMB_RATIO = 1 << 24, 1000
"""From so many pixels on, a file has a byte for each thousand of them: 34 bytes of WebP are 65 million, all black."""
MOST_SCANS, MOST_SCANNED_PIXELS = 100, 1 << 32
"""A JPEG is drawn in some ten scans; one of 95 bytes goes over all of its pixels, and a file may have thousands."""
MOST_FILL_BYTES = 1 << 20
"""Pillow reads bytes 255 that fill a JPEG one by one, a million in a second; others have next to none."""


def check_pixels(path: Path, size: tuple[int, int]) -> None:
    """Raise InvalidData if a file declares very many pixels, or too many for its bytes."""
    n_pixels = size[0] * size[1]
    if n_pixels > MOST_PIXELS:
        raise InvalidData(f"{path.name}: {size[1]} by {size[0]} pixels are more than {MOST_PIXELS}")
    if n_pixels > max(BOMB_PIXELS, BOMB_RATIO * path.stat().st_size):
        raise InvalidData(
            f"{path.name}: {size[1]} by {size[0]} pixels in {path.stat().st_size} bytes: no picture, but a file made"
            " to fill the memory"
        )


def check_scans(path: Path, n_pixels: int) -> None:
    """Raise InvalidData if a JPEG of that many pixels would be decoded in too many scans."""
    if path.stat().st_size * n_pixels <= MOST_SCANNED_PIXELS:  # too small a file, or too few pixels, to take long
        return
    n_scans, before = 0, b""
    for part in _parts(path):
        n_scans += (before + part).count(b"\xff\xda")
        before = part[-1:]
    if n_scans > max(MOST_SCANS, MOST_SCANNED_PIXELS // n_pixels):
        raise InvalidData(f"{path.name}: a JPEG of {n_scans} scans over {n_pixels} pixels, made to take long")


def check_fill(path: Path) -> None:
    """Raise InvalidData if a JPEG has very many fill bytes, before anything reads its header."""
    if path.stat().st_size <= MOST_FILL_BYTES:
        return
    n_filled = 0
    for place, part in enumerate(_parts(path)):
        if place == 0 and not part.startswith(b"\xff\xd8"):
            return
        n_filled += 2 * part.count(b"\xff\xff")
    if n_filled > MOST_FILL_BYTES:
        raise InvalidData(f"{path.name}: a JPEG of which {n_filled} bytes only fill, made to take long")


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(CHUNK_BYTES):
            yield part
