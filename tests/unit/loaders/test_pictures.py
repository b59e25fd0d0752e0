"""Folders of pictures: each becomes its pixels; what is broken, huge, foreign or elsewhere is named."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from easeml_loaders import picture_folders
from easeml_loaders.picture_folders import picture_source
from easeml_loaders.picture_labels import Skipped, Wanted, read_labels
from easeml_loaders.pictures import (
    Place,
    array_source,
    picture_size,
    read_picture,
)
from easeml_plpy.server.errors import InvalidData

WANTED = Wanted((4, 6, 3), frozenset({"a", "b"}))


def save(folder, name, size=(6, 4), colour=(10, 20, 30), **options):
    Image.new("RGB", size, colour).save(folder / name, **options)
    return folder / name


def read_all(source):
    chunks = list(source.chunks())
    return [bytes(pixels) for values, _ in chunks for pixels in values.data], [
        bytes(output) for _, values in chunks for output in values.data
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


def test_a_sound_picture_with_odd_notes_beside_its_pixels_is_read(tmp_path):
    """A palette whose colours have transparencies, and EXIF data that breaks off: Pillow warns of both."""
    colours = Image.new("RGB", (6, 4), (10, 20, 30)).quantize(2)
    colours.save(tmp_path / "icon.png", transparency=b"\xff" * 255 + b"\0")
    save(tmp_path, "photo.jpg", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01")
    for name in ("icon.png", "photo.jpg"):
        assert picture_size(tmp_path, [(name, "a")]) == (4, 6, 3)
        pixels = np.frombuffer(read_picture(tmp_path / name, WANTED), np.uint8).reshape(24, 3)
        assert np.abs(pixels - np.array([10, 20, 30])).max() <= 9  # of JPEG


@pytest.mark.parametrize("name", ["drawing.png", "drawing.webp", "drawing.tif"])
def test_black_strokes_on_a_transparent_ground_are_on_white_where_no_alpha_is_wanted(tmp_path, name):
    drawing = Image.new("RGBA", (6, 4), (0, 0, 0, 0))
    drawing.putpixel((2, 1), (0, 0, 0, 255))
    drawing.save(tmp_path / name, **({"lossless": True, "exact": True} if name.endswith("webp") else {}))
    for channels in (1, 3):
        pixels = np.frombuffer(read_picture(tmp_path / name, Wanted((4, 6, channels), None)), np.uint8)
        assert (pixels.reshape(4, 6, channels) == 255).all(2).sum() == 23
        assert not pixels.reshape(4, 6, channels)[1, 2].any()
    assert read_picture(tmp_path / name, Wanted((4, 6, 4), None)) == drawing.tobytes()


@pytest.mark.parametrize("mode", ["LA", "P", "L", "RGB", "1"])
def test_whatever_says_what_is_transparent_is_heeded(tmp_path, mode):
    if mode == "LA":
        picture, options = Image.new(mode, (6, 4), (0, 0)), {}
        picture.putpixel((2, 1), (0, 255))
        name = "some.png"
    else:
        picture = Image.new(mode, (6, 4), 0 if mode != "RGB" else (0, 0, 0))
        picture.putpixel((2, 1), 1 if mode != "RGB" else (1, 1, 1))
        options, name = {"transparency": 0 if mode != "RGB" else (0, 0, 0)}, "some.png"
    picture.save(tmp_path / name, **options)
    assert picture_size(tmp_path, [(name, "a")]) == (4, 6, 1 if mode in ("1", "L", "LA") else 3)
    pixels = np.frombuffer(read_picture(tmp_path / name, WANTED), np.uint8).reshape(4, 6, 3)
    assert (np.delete(pixels.reshape(24, 3), 8, 0) == 255).all()
    if mode != "1":
        assert pixels[1, 2].max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["photo.png", "photo.webp", "photo.tif", "photo.jpg"])
def test_a_picture_is_read_as_it_is_shown(tmp_path, name, orientation):
    shown = np.full((8, 24, 3), 255, np.uint8)
    shown[:4, :8] = 0
    undone = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 7: "TRANSVERSE"}
    undone |= {6: "ROTATE_90", 8: "ROTATE_270"}
    held = Image.fromarray(shown)
    if orientation > 1:
        held = held.transpose(Image.Transpose[undone[orientation]])
    exif = Image.Exif()
    exif[0x0112] = orientation
    held.save(tmp_path / name, exif=exif, **({"lossless": True} if name.endswith("webp") else {}))
    assert picture_size(tmp_path, [(name, "a")]) == (8, 24, 3)
    pixels = np.frombuffer(read_picture(tmp_path / name, Wanted((8, 24, 3), None)), np.uint8).reshape(8, 24, 3)
    assert np.abs(pixels.astype(int) - shown).max() <= 9  # of JPEG


def test_an_orientation_behind_the_pixels_of_a_png_counts(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path, "photo.png", size=(4, 6), exif=exif)
    whole = (tmp_path / "photo.png").read_bytes()
    place = whole.index(b"eXIf") - 4
    end = place + 12 + int.from_bytes(whole[place : place + 4], "big")
    (tmp_path / "photo.png").write_bytes(whole[:place] + whole[end:-12] + whole[place:end] + whole[-12:])
    assert picture_size(tmp_path, [("photo.png", "a")]) == (4, 6, 3)
    assert len(read_picture(tmp_path / "photo.png", WANTED)) == 72


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


@pytest.mark.parametrize("name", ["grey.png", "grey.tif"])
def test_of_16_bits_the_upper_ones_count(tmp_path, name):
    values = np.array([0, 255, 256, 30_000, 65_535, 1], np.uint16).reshape(2, 3)
    Image.fromarray(values).save(tmp_path / name)
    assert list(read_picture(tmp_path / name, Wanted((2, 3, 1), None))) == [0, 0, 1, 117, 255, 0]
    assert list(read_picture(tmp_path / name, Wanted((2, 3, 3), None)))[9:12] == [117] * 3


def test_a_pgm_of_16_bits_is_read_as_a_png_is(tmp_path):
    values = np.array([0, 255, 256, 30_000, 65_535, 1], ">u2")
    (tmp_path / "grey.pgm").write_bytes(b"P5\n3 2\n65535\n" + values.tobytes())
    (tmp_path / "narrow.pgm").write_bytes(b"P5\n3 1\n4095\n" + np.array([0, 2048, 4095], ">u2").tobytes())
    assert picture_size(tmp_path, [("grey.pgm", "a")]) == (2, 3, 1)
    assert list(read_picture(tmp_path / "grey.pgm", Wanted((2, 3, 1), None))) == [0, 0, 1, 117, 255, 0]
    assert list(read_picture(tmp_path / "narrow.pgm", Wanted((1, 3, 1), None))) == [0, 128, 255]


def test_a_tiff_of_16_bits_whose_zero_is_white_is_white_there(tmp_path):
    values = np.array([[0, 65_535, 256], [1, 30_000, 65_280]], np.uint16)
    Image.fromarray(values).save(tmp_path / "scan.tif", tiffinfo={262: 0})
    assert list(read_picture(tmp_path / "scan.tif", Wanted((2, 3, 1), None))) == [255, 0, 254, 255, 138, 0]


@pytest.mark.parametrize("element", [np.int32, np.float32])
def test_numbers_that_are_no_brightness_are_refused(tmp_path, element):
    Image.fromarray(np.ones((2, 3), element)).save(tmp_path / "numbers.tif")
    with pytest.raises(InvalidData, match=r"numbers\.tif: expected 8 or 16 bits for each value, got 32"):
        read_picture(tmp_path / "numbers.tif", Wanted((2, 3, 1), None))


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


PAIRED = Wanted((4, 6, 3), None, output=Wanted((2, 3, 1), None))


def test_a_picture_may_come_out(tmp_path):
    save(tmp_path, "one.png")
    Image.new("L", (3, 2), 9).save(tmp_path / "clean.png")
    (tmp_path / "pairs.csv").write_text("file,output\none.png,clean.png\none.png,none.png\none.png,one.png\n")
    pairs = read_labels(tmp_path / "pairs.csv", "output")
    skipped = Skipped(refuses=False)
    assert read_all(picture_source(tmp_path, pairs, PAIRED, skipped)) == ([bytes([10, 20, 30] * 24)], [bytes([9] * 6)])
    assert skipped.problems == [
        f"none.png: there is no such file in {tmp_path}", "one.png: expected 2 by 3 pixels, got 4 by 6",
    ]  # fmt: skip


def test_arrays_of_pictures_that_come_out_are_fed_side_by_side():
    given, wanted = np.zeros((2, 4, 6, 3), np.uint8), np.arange(12, dtype=np.uint8).reshape(2, 2, 3, 1)
    (chunk,) = array_source(given, wanted, PAIRED, Skipped(refuses=True)).chunks()
    assert [values.data.shape for values in chunk] == [(2, 72), (2, 6)]
    assert chunk[1].data.tobytes() == wanted.tobytes()
    with pytest.raises(InvalidData, match=r"expected 8-bit images of shape \[2, 3, 1\]"):
        array_source(given, given, PAIRED, Skipped(refuses=True))


def test_several_processes_read_what_one_reads_in_the_same_order(tmp_path, monkeypatch):
    for k in range(30):
        save(tmp_path, f"{k}.png", colour=(k, 0, 0))
    (tmp_path / "20.png").write_bytes(b"broken")
    labels = [(f"{k}.png", "ab"[k % 2]) for k in range(30)]

    def found():
        skipped = Skipped(refuses=False)
        return read_all(picture_source(tmp_path, labels, WANTED, skipped)), skipped.problems

    alone = found()
    monkeypatch.setattr(picture_folders, "MANY_PICTURES", 1)
    monkeypatch.setattr(picture_folders, "PART_BYTES", 72 * 4)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert found() == alone
    assert len(alone[0][0]) == 29


def test_links_lead_nowhere_outside_the_folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    save(tmp_path, "outside.png")
    save(folder, "inside.png")
    (folder / "out.png").symlink_to(tmp_path / "outside.png")
    (folder / "up").symlink_to(tmp_path)
    (folder / "in.png").symlink_to(folder / "inside.png")
    place = Place(folder)
    assert place.of("in.png") == place.of("./inside.png") == folder.resolve() / "inside.png"
    for name in ("out.png", "up/outside.png", "../outside.png", str(tmp_path / "outside.png"), "", ".", "up", "a\0b/c"):
        with pytest.raises(InvalidData, match=r"no file below|no such file"):
            place.of(name)
        assert place.content(name, 1000) == b""
    assert place.content("inside.png", 1000) == (folder / "inside.png").read_bytes()
    assert place.content("in.png", 1000) == b"", "a link is followed by `of`, which says where it leads"
    assert place.content("inside.png", 10) == b"", "a large file is for Pillow"


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "expected a header"), ("name,label\n", "expected a header"), ("file,label\n", "no labels below the header")],
)
def test_labels_need_a_header_and_rows(tmp_path, text, message):
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(InvalidData, match=message):
        read_labels(tmp_path / "labels.csv")


def test_a_jpeg_of_very_many_scans_is_refused_before_it_is_drawn(tmp_path: Path) -> None:
    """Each scan of 95 bytes is drawn over all pixels."""
    path = tmp_path / "x.jpg"
    Image.new("RGB", (4096, 4096)).save(path, progressive=True)
    whole = path.read_bytes()
    last = whole[whole.rfind(b"\xff\xda") : -2]
    read_picture(path, Wanted((8, 8, 3), None, is_resized=True))
    path.write_bytes(whole[:-2] + 300 * last + whole[-2:])
    with pytest.raises(InvalidData, match=r"a JPEG of 3\d\d scans over 16777216 pixels, made to take long"):
        read_picture(path, Wanted((8, 8, 3), None, is_resized=True))


@pytest.mark.parametrize("place", [2, -2], ids=["head", "end"])
def test_a_jpeg_of_bytes_that_only_fill_is_refused_before_anything_reads_its_head(tmp_path: Path, place: int) -> None:
    """Pillow goes over them one by one: 50 million take a minute."""
    path = tmp_path / "x.jpg"
    Image.new("RGB", (16, 16)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:place] + 6_000_000 * b"\xff" + whole[place:])
    with pytest.raises(InvalidData, match=r"a JPEG of which \d+ bytes only fill, made to take long"):
        read_picture(path, Wanted((16, 16, 3), None))
    with pytest.raises(InvalidData, match="only fill"):
        picture_size(tmp_path, [("x.jpg", "a")])
