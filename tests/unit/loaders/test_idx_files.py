"""IDX files and Fashion-MNIST's folder of them, made small."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from easeml_db.errors import InvalidData, NotFound
from easeml_loaders import fashion_mnist_source, idx_source


def idx_bytes(array: NDArray[Any]) -> bytes:
    sizes = struct.pack(f">{array.ndim}i", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def pair(folder: Path, n_images: int = 3, n_labels: int = 3) -> tuple[Path, Path]:
    images, labels = folder / "images.gz", folder / "labels"
    images.write_bytes(gzip.compress(idx_bytes(np.arange(n_images * 4).reshape(-1, 2, 2))))
    labels.write_bytes(idx_bytes(np.arange(n_labels)))
    return images, labels


def test_images_become_bytea_and_labels_integers(tmp_path: Path) -> None:
    made = idx_source(*pair(tmp_path))
    assert [column.declared_type for column in made.columns] == ["bytea", "integer"]
    (chunk,) = made.chunks()
    assert np.asarray(chunk[0].data).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert np.asarray(chunk[1].data).tolist() == [0, 1, 2]


def test_images_as_arrays_keep_their_shape(tmp_path: Path) -> None:
    made = idx_source(*pair(tmp_path), bytes_as="array")
    assert made.columns[0].declared_type == "smallint[2][2]"
    (chunk,) = made.chunks()
    assert np.asarray(chunk[0].data).shape == (3, 2, 2)


def test_counts_must_agree(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"3 images in .*, but 2 labels in"):
        idx_source(*pair(tmp_path, n_labels=2))


def test_images_and_labels_are_not_exchanged(tmp_path: Path) -> None:
    images, labels = pair(tmp_path)
    with pytest.raises(InvalidData, match="expected images"):
        idx_source(labels, images)


@pytest.mark.parametrize("content", [b"", b"\0\0\x0d\3", b"\0\0\x08\0", b"PK\3\4", b"\0\0\x08\3\0\0"])
def test_wrong_magic_or_header_is_refused(tmp_path: Path, content: bytes) -> None:
    images, labels = pair(tmp_path)
    images.write_bytes(content)
    with pytest.raises(InvalidData, match=r"images\.gz"):
        idx_source(images, labels)


@pytest.mark.parametrize(("change", "message"), [(slice(None, -1), "cut off"), (slice(None), "more data")])
def test_data_must_be_as_long_as_the_header_says(tmp_path: Path, change: slice, message: str) -> None:
    images, labels = pair(tmp_path)
    labels.write_bytes((labels.read_bytes() + b"x" * (change.stop is None))[change])
    with pytest.raises(InvalidData, match=f"labels: {message}"):
        list(idx_source(images, labels).chunks())


def test_damaged_gzip_names_the_right_file(tmp_path: Path) -> None:
    images, labels = pair(tmp_path)
    images.write_bytes(images.read_bytes()[:-9])
    with pytest.raises(InvalidData, match=r"images\.gz: (damaged|cut off)"):
        list(idx_source(images, labels).chunks())


def fashion_folder(folder: Path, test_labels: list[int]) -> Path:
    for prefix, codes in (("train", [9, 0]), ("t10k", test_labels)):
        images = np.zeros((len(codes), 28, 28))
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx_bytes(np.array(codes)))
    return folder


def test_fashion_mnist_names_labels_and_marks_test_images(tmp_path: Path) -> None:
    made = fashion_mnist_source(fashion_folder(tmp_path, [6]))
    assert [(column.name, column.declared_type) for column in made.columns] == [
        ("image", "bytea"),
        ("label", "text"),
        ("is_test", "boolean"),
    ]
    train, test = made.chunks()
    assert list(train[1].data) == [b"ankle boot", b"t-shirt/top"]
    assert list(test[1].data) == [b"shirt"]
    assert [np.asarray(chunk[2].data).tolist() for chunk in (train, test)] == [[False, False], [True]]


def test_fashion_mnist_refuses_unknown_labels(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="label 10, expected 0 to 9"):
        list(fashion_mnist_source(fashion_folder(tmp_path, [10])).chunks())


def test_fashion_mnist_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        fashion_mnist_source(tmp_path)
    assert "apt-get install dataset-fashion-mnist" in (caught.value.hint or "")
