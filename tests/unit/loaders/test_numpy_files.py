"""Arrays: which column each becomes, streaming, and what is refused."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from easeml_db.errors import InvalidArgument, InvalidData
from easeml_loaders import Source, numpy_source, source


def saved(path: Path, **arrays: NDArray[Any]) -> Path:
    file = path / "data.npz"
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file


def read_back(made: Source) -> list[Any]:
    chunks = list(made.chunks())
    return [np.concatenate([np.asarray(chunk[i].data) for chunk in chunks]) for i in range(len(made.columns))]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.zeros(2, np.uint8), "smallint"),
        (np.zeros(2, np.uint16), "integer"),
        (np.zeros(2, ">i8"), "bigint"),
        (np.zeros(2, np.float16), "real"),
        (np.zeros(2), "double precision"),
        (np.zeros(2, np.bool_), "boolean"),
        (np.array(["ä", "b"]), "text"),
        (np.zeros((2, 3), np.float32), "real[3]"),
        (np.zeros((2, 3, 4)), "double precision[3][4]"),
        (np.zeros((2, 3), np.int8), "smallint[3]"),
        (np.zeros((2, 3), np.uint8), "bytea"),
    ],
)
def test_column_type(tmp_path: Path, array: NDArray[Any], expected: str) -> None:
    (column,) = numpy_source(saved(tmp_path, x=array)).columns
    assert column.declared_type == expected


def test_bytes_as_array_keep_their_shape(tmp_path: Path) -> None:
    made = numpy_source(saved(tmp_path, x=np.zeros((2, 3, 4), np.uint8)), bytes_as="array")
    assert made.columns[0].declared_type == "smallint[3][4]"


@pytest.mark.parametrize("order", ["C", "F"])
def test_chunks_give_the_rows_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Any) -> None:
    monkeypatch.setattr(source, "CHUNK_BYTES", 100)
    x = np.arange(60, dtype=">f8").reshape(10, 3, 2).copy(order=order)
    made = numpy_source(saved(tmp_path, x=x, y=np.arange(10)))
    assert made.n_rows == 10
    assert len(list(made.chunks())) > 1
    x_back, y_back = read_back(made)
    np.testing.assert_array_equal(x_back, x)
    np.testing.assert_array_equal(y_back, np.arange(10))


def test_npy_goes_by_its_file_name(tmp_path: Path) -> None:
    np.save(tmp_path / "pixels.npy", np.arange(3))
    made = numpy_source(tmp_path / "pixels.npy")
    assert made.columns[0].name == "pixels"
    assert read_back(made)[0].tolist() == [0, 1, 2]


def test_inputs_and_target_choose_and_rename(tmp_path: Path) -> None:
    file = saved(tmp_path, x_train=np.zeros((3, 2)), y_train=np.zeros(3), x_test=np.zeros((2, 2)))
    with pytest.raises(InvalidData, match="x_train 3, y_train 3, x_test 2"):
        numpy_source(file)
    made = numpy_source(file, inputs=["x_train=x"], target="y_train")
    assert [column.name for column in made.columns] == ["x", "y_train"]


def test_unknown_array_is_refused_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no array 'z'") as caught:
        numpy_source(saved(tmp_path, x=np.zeros(2)), inputs=["z"])
    assert caught.value.hint == "It holds: x"


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}, None], object),
        np.array(5),
        np.zeros(2, complex),
        np.zeros((2, 0)),
        np.zeros(2, "M8[s]"),
        np.array([["a"], ["b"]]),
        np.zeros((1,) * 8),
        np.zeros(2, [("a", "i4")]),
    ],
)
def test_arrays_without_a_column_type_are_refused(tmp_path: Path, array: NDArray[Any]) -> None:
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(InvalidData):
        numpy_source(tmp_path / "x.npy")


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    made = numpy_source(saved(tmp_path, x=np.array([b"\xff"])))
    with pytest.raises(InvalidData, match="not UTF-8"):
        read_back(made)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x"])
def test_wrong_length_is_refused(tmp_path: Path, change: Any) -> None:
    np.save(tmp_path / "x.npy", np.arange(100))
    (tmp_path / "x.npy").write_bytes(change((tmp_path / "x.npy").read_bytes()))
    with pytest.raises(InvalidData, match=r"cut off|more data"):
        read_back(numpy_source(tmp_path / "x.npy"))


@pytest.mark.parametrize("content", [b"", b"PKbroken", b"not numpy", b"\x93NUMPY\x09\x09"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(InvalidData):
        numpy_source(tmp_path / "x.npz")


@pytest.mark.parametrize("code", [0xD800, 0x110000, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("n_characters", [1, 3, 9])
def test_text_that_is_no_unicode_is_refused(tmp_path: Path, code: int, order: str, n_characters: int) -> None:
    codes = np.full((2, n_characters), 0x61, f"{order}u4")
    codes[1, n_characters // 2] = code
    made = numpy_source(saved(tmp_path, x=codes.view(f"{order}U{n_characters}")[:, 0]))
    with pytest.raises(InvalidData, match="array 'x' holds text that is no Unicode"):
        list(made.chunks())


def test_an_archive_whose_members_cannot_be_unpacked_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x.npy", npy_bytes(np.arange(999)))
    whole = path.read_bytes()
    directory = whole.index(b"PK\x01\x02")
    for place, value, message in (
        (60, 255, "damaged"), (directory + 8, 1, "'x.npy' cannot be unpacked"), (directory + 6, 99, "no archive"),
        (directory + 10, 97, "'x.npy' cannot be unpacked"), (directory + 46, 255, "no archive"),
    ):  # fmt: skip
        changed = bytearray(whole)
        changed[place] = value
        if value == 255 and place > directory:
            changed[directory + 9] |= 8  # its name is said to be UTF-8
        path.write_bytes(changed)
        with pytest.raises(InvalidData, match=message):
            list(numpy_source(path).chunks())


def npy_bytes(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_archive_without_arrays_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w"):
        pass
    with pytest.raises(InvalidData, match="no arrays"):
        numpy_source(tmp_path / "x.npz")
