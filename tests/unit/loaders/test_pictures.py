"""Folders of pictures: each becomes its pixels; what is broken, huge, foreign or elsewhere is named."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from easeml_loaders.pictures import (
    Skipped,
    Wanted,
    array_source,
    picture_size,
    picture_source,
    read_labels,
    read_picture,
)
from easeml_plpy.errors import InvalidData

WANTED = Wanted((4, 6, 3), frozenset({"a", "b"}))


def save(folder, name, size=(6, 4), colour=(10, 20, 30), **options):
    Image.new("RGB", size, colour).save(folder / name, **options)
    return folder / name


def read_all(source):
    chunks = list(source.chunks())
    return [bytes(pixels) for values, _ in chunks for pixels in values.data], [
        label for _, values in chunks for label in values.data
    ]


def test_pictures_become_their_pixels_in_whatever_format(tmp_path):
    save(tmp_path, "one.png")
    Image.new("L", (6, 4), 7).save(tmp_path / "two.bmp")
    (tmp_path / "labels.csv").write_text("file,label\none.png,a\ntwo.bmp,b\n")
    labels = read_labels(tmp_path / "labels.csv")
    pixels, outputs = read_all(picture_source(tmp_path, labels, WANTED, Skipped(refuses=True)))
    assert pixels == [bytes([10, 20, 30] * 24), bytes([7] * 72)]
    assert outputs == [b"a", b"b"]
    assert picture_size(tmp_path, labels) == (4, 6, 3)


def bomb(path):
    """Write a PNG of a few hundred bytes whose header promises 60,000 by 60,000 pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def test_what_cannot_be_read_is_named_and_skipped(tmp_path):
    save(tmp_path, "good.png")
    save(tmp_path, "small.png", size=(5, 5))
    bomb(tmp_path / "bomb.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "good.png").read_bytes()[:40])
    (tmp_path / "page.png").write_text("<html><script>alert(1)</script>")
    names = ["good.png", "small.png", "bomb.png", "cut.png", "page.png", "none.png", "../labels.csv", "/etc/passwd"]
    skipped = Skipped(refuses=False)
    labels = [(name, "a") for name in names] + [("good.png", "c"), ("good.png", "b")]
    pixels, outputs = read_all(picture_source(tmp_path, labels, WANTED, skipped))
    assert outputs == [b"a", b"b"]
    assert len(pixels) == 2
    assert skipped.n_examples == 8
    told = "\n".join(skipped.problems)
    assert "small.png: expected 4 by 6 pixels, got 5 by 5" in told
    for name in ("bomb.png", "cut.png", "page.png"):
        assert f"{name}: cannot be read as a picture" in told
    assert "none.png: there is no such file" in told
    assert "'../labels.csv' is no file below" in told
    assert "'/etc/passwd' is no file below" in told
    assert "label 'c' is no class of the task" in told


def test_the_first_problem_is_an_error_unless_examples_may_be_skipped(tmp_path):
    save(tmp_path, "small.png", size=(5, 5))
    with pytest.raises(InvalidData, match=r"small\.png: expected 4 by 6 pixels") as caught:
        read_all(picture_source(tmp_path, [("small.png", "a")], WANTED, Skipped(refuses=True)))
    assert "Nothing was fed" in str(caught.value.hint)


def test_pictures_of_another_size_may_be_resized(tmp_path):
    path = save(tmp_path, "large.png", size=(60, 40))
    assert len(read_picture(path, Wanted((4, 6, 3), None, is_resized=True))) == 72


def test_numbers_as_labels_must_be_finite(tmp_path):
    save(tmp_path, "one.png")
    skipped = Skipped(refuses=False)
    labels = [("one.png", "1.5"), ("one.png", "nan"), ("one.png", "much")]
    chunks = list(picture_source(tmp_path, labels, Wanted((4, 6, 3), None), skipped).chunks())
    assert [values.data.tolist() for _, values in chunks] == [[1.5]]
    assert skipped.n_examples == 2


def test_an_array_of_images_is_fed_without_a_loop_over_them():
    images = np.arange(2 * 72, dtype=np.uint8).reshape(2, 4, 6, 3)
    (chunk,) = array_source(images, ["a", "b"], WANTED, Skipped(refuses=True)).chunks()
    assert chunk[0].data.tobytes() == images.tobytes()
    with pytest.raises(InvalidData, match="expected 8-bit images of shape"):
        array_source(images.astype(float), ["a", "b"], WANTED, Skipped(refuses=True))
    with pytest.raises(InvalidData, match="2 images have 1 labels"):
        array_source(images, ["a"], WANTED, Skipped(refuses=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "expected a header"), ("name,label\n", "expected a header"), ("file,label\n", "no labels below the header")],
)
def test_labels_need_a_header_and_rows(tmp_path, text, message):
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(InvalidData, match=message):
        read_labels(tmp_path / "labels.csv")
