"""Hostile files: a header that promises more than its file holds is refused in one line, before memory is taken."""

from __future__ import annotations

import gzip
import io
import resource
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from easeml_loaders import csv_source, idx_source, json_lines, numpy_source
from easeml_loaders.picture_labels import read_labels
from easeml_plpy.server.errors import InvalidData

LARGEST = 2**32 - 1
MORE_BYTES = 256 << 20


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """Whatever takes another 256 MB fails."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with open("/proc/self/status", encoding="ascii") as status:
        used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + MORE_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def idx(shape: tuple[int, ...], data: bytes = b"") -> bytes:
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + data


def npy(shape: str, *, descr: str = "<f8", is_fortran: bool = False, data: bytes = bytes(800)) -> bytes:
    head = f"{{'descr': {descr!r}, 'fortran_order': {is_fortran}, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


def npz(member: bytes, claimed: int | None = None) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", member)
    packed = file.getvalue()
    if claimed is not None:  # the size that both headers of the member claim
        packed = packed.replace(struct.pack("<I", len(member)), struct.pack("<I", claimed))
    return packed


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize(
    "shape", [(LARGEST, LARGEST, LARGEST), (LARGEST, 28, 28), (10, LARGEST, LARGEST), (2, LARGEST), (5, 1, 10**7)]
)
def test_idx_files_that_promise_too_much(tmp_path: Path, shape: tuple[int, ...], is_packed: bool) -> None:
    pack = gzip.compress if is_packed else bytes
    (tmp_path / "images").write_bytes(pack(idx(shape, bytes(1000))))
    (tmp_path / "labels").write_bytes(pack(idx(shape[:1], bytes(10))))
    with pytest.raises(InvalidData, match=r"cut off: its header says .* bytes of data, and it holds") as refused:
        idx_source(tmp_path / "images", tmp_path / "labels")
    assert len(str(refused.value)) < 400


ARRAYS = {
    "a negative size": (npy("(-5,)"), "a size below 0"),
    "negative sizes of a positive product": (npy("(-5, -20)"), "a size below 0"),
    "a huge array in Fortran order": (npy("(100000, 1000000)", is_fortran=True), "cut off"),
    "a huge array": (npy("(1000000000, 1000)"), "cut off"),
    "a size beyond 64 bits": (npy(f"({10**40}, 2)"), "cut off: its header says more than 10\\^18 bytes"),
    "long words": (npy("(100,)", descr="<U500000000"), "cut off"),
    "more rows than there are": (npy("(200,)"), "cut off"),
    "a nested header": (npy("(" * 900 + "1," + ")" * 900), "no array in .npy format"),
    "sizes that are no numbers": (npy("(1.5,)"), "no array in .npy format"),
    "a structure of itself": (npy("(1,)", descr="O"), "no column type keeps|no array in .npy"),
}


@pytest.mark.parametrize("what", sorted(ARRAYS))
@pytest.mark.parametrize("kind", ["npy", "npy.gz", "npz"])
def test_numpy_files_that_promise_too_much(tmp_path: Path, what: str, kind: str) -> None:
    data, message = ARRAYS[what]
    if kind == "npy.gz" and what in ("more rows than there are",):
        return  # a packed file tells only when it is read
    path = tmp_path / f"x.{kind}"
    path.write_bytes({"npy": bytes, "npy.gz": gzip.compress, "npz": npz}[kind](data))
    with pytest.raises(InvalidData, match=message) as refused:
        numpy_source(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_member_that_claims_to_be_larger_than_its_bytes_can_become(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(npz(npy("(400000000,)", is_fortran=True), claimed=3_200_000_128))
    with pytest.raises(InvalidData, match="cut off"):
        list(numpy_source(path).chunks())


def packed(path: Path, begin: bytes, repeated: bytes, n_megabytes: int) -> Path:
    """Write some kilobytes that unpack to megabytes, without end of line."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(begin)
        for _ in range(n_megabytes):
            file.write(repeated * ((1 << 20) // len(repeated)))
    return path


ENDLESS = {
    "a line": (b"a,b\n1,", b"x", "line 2: expected lines of at most 67108864 bytes"),
    "a header": (b"", b"abcdefgh", "line 1: expected lines of at most 67108864 bytes"),
    "commas": (b"a,b\n1", b",", "line 2: "),
    "a record within quotes": (
        b'a,b\n1,"',
        b"\n" + b'","' * 85,
        "a record of more than 67108864 bytes or 4000000 fields",
    ),
}


@pytest.mark.parametrize("what", sorted(ENDLESS))
def test_csv_without_end(tmp_path: Path, what: str) -> None:
    begin, repeated, message = ENDLESS[what]
    with pytest.raises(InvalidData, match=message) as refused:
        csv_source(packed(tmp_path / "x.csv.gz", begin, repeated, 70))
    assert "\n" not in str(refused.value)


def test_labels_and_lines_of_json_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_bytes(b"file,label\n" + b"," * (2 << 20))
    with pytest.raises(InvalidData, match="line 2: expected lines of at most 1048576 characters"):
        read_labels(labels)
    monkeypatch.setattr(json_lines, "MOST_LINE_CHARACTERS", 1000)
    with pytest.raises(InvalidData, match="line 2: expected lines of at most 1000 characters"):
        list(json_lines.parts_of(io.StringIO("[1]\n" + " " * 5000), "input"))


def test_packed_rows_and_arrays_that_would_be_unpacked_whole(tmp_path: Path) -> None:
    """A megabyte that unpacks to a gigabyte: the size of the file alone does not justify it."""
    padding = bytes(3 << 20)
    rows = tmp_path / "rows.npy.gz"
    rows.write_bytes(gzip.compress(npy("(2, 150000000)")) + padding)
    with pytest.raises(InvalidData, match="its header says 1200000000 bytes a row"):
        numpy_source(rows)
    whole = tmp_path / "whole.npy.gz"
    whole.write_bytes(gzip.compress(npy("(300000000,)", is_fortran=True)) + padding)
    with pytest.raises(InvalidData, match="in Fortran order, so it would be unpacked whole"):
        numpy_source(whole)
    (tmp_path / "images").write_bytes(gzip.compress(idx((1, 50000, 40000))) + padding)
    (tmp_path / "labels").write_bytes(idx((1,), bytes(1)))
    with pytest.raises(InvalidData, match="its header says 2000000000 bytes a row"):
        idx_source(tmp_path / "images", tmp_path / "labels")


def test_what_is_whole_still_loads(tmp_path: Path) -> None:
    values = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    np.save(tmp_path / "x.npy", values)
    (chunk,) = numpy_source(tmp_path / "x.npy").chunks()
    assert np.array_equal(np.asarray(chunk[0].data), values)
    (tmp_path / "images").write_bytes(gzip.compress(idx((300, 9, 9), bytes(300 * 81))))
    (tmp_path / "labels").write_bytes(gzip.compress(idx((300,), bytes(300))))
    assert idx_source(tmp_path / "images", tmp_path / "labels").n_rows == 300
