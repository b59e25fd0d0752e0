"""Small PNGs that are unpacked together have the pixels that Pillow reads; whatever is not plain is left to Pillow."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin

from easeml_loaders import picture_folders
from easeml_loaders.picture_folders import read_part
from easeml_loaders.picture_labels import Wanted
from easeml_loaders.pictures import MODES, read_picture
from easeml_loaders.small_pngs import COLOUR_OF, FEWEST, SIGNATURE, unpacked

Pixels = NDArray[np.uint8]


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(lines: bytes, shape: tuple[int, int, int], *, n_parts: int = 1, kind: int | None = None) -> bytes:
    """A file of lines, each with the number of its filter."""
    height, width, channels = shape
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR_OF[channels] if kind is None else kind, 0, 0, 0)
    packed = zlib.compress(lines)
    step = -(-len(packed) // n_parts)
    parts = b"".join(chunk(b"IDAT", packed[start : start + step]) for start in range(0, len(packed), step))
    return SIGNATURE + chunk(b"IHDR", header) + parts + chunk(b"IEND", b"")


def unpacked_one_by_one(files: Sequence[bytes], shape: tuple[int, int, int]) -> list[bytes | None]:
    """The pixels of each file, None for what is left to Pillow."""
    pixels, is_known = unpacked(files, shape)
    assert not pixels[~is_known].any()
    return [each.tobytes() if is_fine else None for each, is_fine in zip(pixels, is_known, strict=True)]


def pillow(file: bytes) -> bytes:
    with Image.open(io.BytesIO(file)) as picture:
        return picture.tobytes()


@given(st.integers(1, 6), st.integers(1, 7), st.sampled_from([1, 3, 4]), st.integers(0, 2**32 - 1))
def test_every_filter_is_undone_as_pillow_does(height: int, width: int, channels: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    lines = generator.integers(0, 256, (5, height, 1 + width * channels), np.uint8)
    lines[:, :, 0] %= 5
    files = [png(each.tobytes(), (height, width, channels), n_parts=1 + place % 3) for place, each in enumerate(lines)]
    assert unpacked_one_by_one(files, (height, width, channels)) == [pillow(file) for file in files]


def saved(pixels: Pixels, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", **options)
    return file.getvalue()


def plain(seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (6, 5), np.uint8)


def noted() -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_text("who", "somebody")
    return saved(plain(), pnginfo=info, dpi=(72, 72))


def test_what_says_nothing_about_pixels_is_passed_over() -> None:
    assert unpacked_one_by_one([noted()], (6, 5, 1)) == [plain().tobytes()]
    assert unpacked_one_by_one([saved(plain()) + b"behind the end"], (6, 5, 1)) == [plain().tobytes()]


LINES = bytes(6 * 6)
NOT_PLAIN = {
    "another size": saved(np.zeros((5, 6), np.uint8)),
    "colours": saved(np.zeros((6, 5, 3), np.uint8)),
    "transparency": saved(plain(), transparency=3),
    "one bit": saved(plain() > 99),
    "a palette": png(LINES, (6, 5, 1), kind=3),
    "another filter": png(bytes([5]) + LINES[1:], (6, 5, 1)),
    "too little": png(LINES[:-1], (6, 5, 1)),
    "too much": png(LINES + b"\0", (6, 5, 1)),
    "cut off": saved(plain())[:-20],
    "no end": saved(plain())[:-12],
    "damaged": saved(plain())[:45] + b"?" + saved(plain())[46:],
    "no header": SIGNATURE + chunk(b"IEND", b""),
    "two headers": saved(plain())[:33] + saved(plain())[8:],
    "a bomb": png(bytes(50_000_000), (6, 5, 1)),
    "another format": b"GIF89a",
    "nothing": b"",
}


@pytest.mark.parametrize("what", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_pillow(what: str) -> None:
    files = [saved(plain(1)), NOT_PLAIN[what], saved(plain(2))]
    assert unpacked_one_by_one(files, (6, 5, 1)) == [plain(1).tobytes(), None, plain(2).tobytes()]


@pytest.mark.parametrize("together", [500, picture_folders.TOGETHER_BYTES])
def test_a_folder_is_read_as_each_picture_by_itself(
    together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def noted(files: Sequence[bytes], shape: tuple[int, int, int]) -> tuple[Pixels, NDArray[np.bool_]]:
        sizes.append(sum(map(len, files)))
        return unpacked(files, shape)

    monkeypatch.setattr(picture_folders, "TOGETHER_BYTES", together)
    monkeypatch.setattr(picture_folders, "unpacked", noted)
    wanted = Wanted((6, 5, 1), frozenset({"a"}))
    names = []
    for place in range(FEWEST + 10):
        name = f"{place}.png"
        Image.fromarray(plain(place)).save(tmp_path / name, **({"transparency": 7} if place % 9 == 0 else {}))
        names.append((name, "a"))
    (tmp_path / "3.png").write_bytes(NOT_PLAIN["damaged"])
    (tmp_path / "5.png").write_bytes(NOT_PLAIN["another size"])
    Image.fromarray(plain(7)).save(tmp_path / "7.png", "BMP")
    names += [("nowhere.png", "a"), ("../elsewhere.png", "a")]
    (read,) = read_part(tmp_path, names, wanted)
    assert max(sizes) < together + picture_folders.MOST_FILE_BYTES
    assert (len(sizes) > 1) is (together == 500)
    assert "3.png: cannot be read as a picture" in read.problems[3]
    assert read.problems[5] == "5.png: expected 6 by 5 pixels, got 5 by 6"
    assert "is no file below" in read.problems[len(names) - 1]
    for place, (name, _) in enumerate(names):
        if place not in read.problems:
            assert read.pixels[place].tobytes() == read_picture(tmp_path / name, wanted)
    assert read.problems.keys() == {3, 5, len(names) - 2, len(names) - 1}
    assert MODES[1] == "L"
