"""Pictures in .npy files are framed without numpy: the same bytes as with it, and all that is odd is left to numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easeml_loaders import plain_arrays
from easeml_loaders.binary_copy import encode_rows
from easeml_loaders.picture_labels import Skipped, Wanted
from easeml_loaders.pictures import array_source
from easeml_loaders.plain_arrays import copied_pictures
from easeml_plpy.server.errors import InvalidData

PIXELS = np.arange(5 * 24, dtype=np.uint8).reshape(5, 4, 6)
CLASSES = Wanted((4, 6, 1), frozenset({"a", "ünder", "10", "2"}))
NUMBERS = Wanted((4, 6, 1), None)
WORDS = np.array(["a", "ünder", "a", "10", "2"])


def saved(folder: Path, labels: np.ndarray, pixels: np.ndarray = PIXELS) -> tuple[Path, Path]:
    np.save(folder / "images.npy", pixels)
    np.save(folder / "labels.npy", labels)
    return folder / "images.npy", folder / "labels.npy"


def all_of(folder: Path, labels: np.ndarray, wanted: Wanted, skipped: Skipped | None = None) -> tuple[int, bytes]:
    parts = copied_pictures(*saved(folder, labels), wanted, skipped or Skipped(refuses=True))
    assert parts is not None
    numbers, tuples = zip(*parts, strict=True)
    return sum(numbers), b"".join(tuples)


def with_numpy(labels: list[str], wanted: Wanted) -> bytes:
    source = array_source(PIXELS, labels, wanted, Skipped(refuses=True))
    return b"".join(tuples for chunk in source.chunks() for tuples in encode_rows(source.columns, chunk))


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (WORDS, CLASSES),
        (np.array([2, 10, 2, 2, 10], np.uint8), CLASSES),
        (np.array([-2, 10, 2, 0, 1 << 40]), NUMBERS),
        (np.array([-2.5, 0.1, 1e-300, -0.0, 7]), NUMBERS),
        (np.array(["1.5", "2", "-3e5", "0", "1_0"]), NUMBERS),
    ],
)
@pytest.mark.parametrize("part_bytes", [48, 1 << 16])
def test_the_bytes_are_those_of_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: np.ndarray, wanted: Wanted, part_bytes: int
) -> None:
    monkeypatch.setattr(plain_arrays, "PART_BYTES", part_bytes)
    assert all_of(tmp_path, labels, wanted) == (5, with_numpy(list(map(str, labels)), wanted))


def test_labels_may_come_from_a_csv(tmp_path: Path) -> None:
    images, labels = saved(tmp_path, WORDS)[0], tmp_path / "labels.csv"
    labels.write_text("file,label\n" + "".join(f"{k},{label}\n" for k, label in enumerate(WORDS)), encoding="utf-8")
    parts = copied_pictures(images, labels, CLASSES, Skipped(refuses=True))
    assert parts is not None
    assert b"".join(tuples for _, tuples in parts) == with_numpy(WORDS.tolist(), CLASSES)


def test_a_label_that_is_no_class_is_refused_or_left_out_and_counted(tmp_path: Path) -> None:
    labels = np.array(["a", "b", "2", "b", "nobody"])
    with pytest.raises(InvalidData, match="image 1: label 'b' is no class of the task"):
        all_of(tmp_path, labels, CLASSES)
    skipped = Skipped(refuses=False)
    n_rows, tuples = all_of(tmp_path, labels, CLASSES, skipped)
    assert (n_rows, skipped.n_examples) == (2, 3)
    assert skipped.problems[2] == "image 4: label 'nobody' is no class of the task"
    assert PIXELS[2].tobytes() in tuples
    assert PIXELS[1].tobytes() not in tuples


@pytest.mark.parametrize(
    ("pixels", "labels"),
    [
        (PIXELS.astype(np.int16), WORDS),
        (np.asfortranarray(PIXELS), WORDS),
        (PIXELS[:, :3], WORDS),
        (PIXELS[:4], WORDS),
        (PIXELS[:0], WORDS[:0]),
        (PIXELS, np.array([b"a"] * 5)),
        (PIXELS, np.array([1, 2, 3, 4, 5], ">i4")),
        (PIXELS, WORDS[:, None]),
    ],
    ids=["16 bits", "columns first", "another shape", "fewer", "none", "bytes", "big-endian", "a table of labels"],
)
def test_what_is_odd_is_left_to_numpy(tmp_path: Path, pixels: np.ndarray, labels: np.ndarray) -> None:
    assert copied_pictures(*saved(tmp_path, labels, pixels), CLASSES, Skipped(refuses=True)) is None


@pytest.mark.parametrize("file", ["images.npy", "labels.npy"])
@pytest.mark.parametrize("n_bytes", [0, 7, 9, 60, -1])
def test_a_file_that_is_cut_off_is_left_to_numpy(tmp_path: Path, file: str, n_bytes: int) -> None:
    files = saved(tmp_path, WORDS)
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes()[:n_bytes])
    assert copied_pictures(*files, CLASSES, Skipped(refuses=True)) is None


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '', 'fortran_order': False, 'shape': (5, 4, 6)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-5, 4, -6)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': 5}",
        "{'descr': [('a', '|u1')], 'fortran_order': False, 'shape': (5, 4, 6)}",
        "['descr']",
        "(" * 5000,
        "open('x')",
    ],
)
def test_a_strange_header_is_left_to_numpy(tmp_path: Path, header: str) -> None:
    files = saved(tmp_path, WORDS)
    text = header.encode()
    files[0].write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(200))
    assert copied_pictures(*files, CLASSES, Skipped(refuses=True)) is None
