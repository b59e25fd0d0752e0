"""The COPY encoding, read back by a decoder written row by row from the manual."""

from __future__ import annotations

import struct
from decimal import Decimal

import numpy as np
import pytest

from easeml_db.errors import InvalidData
from easeml_loaders import binary_copy
from easeml_loaders.binary_copy import numeric_bytes
from easeml_loaders.source import Chunk, Column, Values


def decoded(stream: bytes) -> list[list[bytes | None]]:
    rows, at = [], 0
    while at < len(stream):
        (n_fields,) = struct.unpack_from(">h", stream, at)
        at += 2
        row: list[bytes | None] = []
        for _ in range(n_fields):
            (length,) = struct.unpack_from(">i", stream, at)
            at += 4
            row.append(None if length < 0 else stream[at : at + length])
            at += max(length, 0)
        rows.append(row)
    return rows


def encoded(columns: list[Column], chunk: Chunk) -> list[list[bytes | None]]:
    return decoded(b"".join(binary_copy.encode_rows(columns, chunk)))


@pytest.mark.parametrize(
    ("element", "layout", "values"),
    [
        ("boolean", ">?", [True, False]),
        ("smallint", ">h", [-(2**15), 2**15 - 1]),
        ("integer", ">i", [-(2**31), 2**31 - 1]),
        ("bigint", ">q", [-(2**63), 2**63 - 1]),
        ("real", ">f", [1.5, float("inf")]),
        ("double precision", ">d", [0.1, -1e300]),
    ],
)
def test_scalars_are_big_endian(element: str, layout: str, values: list[float]) -> None:
    rows = encoded([Column("c", element)], [Values(np.array(values))])
    assert rows == [[struct.pack(layout, value)] for value in values]


def test_array_has_header_bounds_and_a_length_per_element() -> None:
    data = np.arange(12, dtype=np.int16).reshape(2, 2, 3)
    rows = encoded([Column("c", "smallint", (2, 3))], [Values(data)])
    elements = b"".join(struct.pack(">ih", 2, value) for value in range(6, 12))
    assert rows[1] == [struct.pack(">7i", 2, 0, 21, 2, 1, 3, 1) + elements]


def test_wide_rows_whose_last_field_has_any_length_or_is_null() -> None:
    pixels = np.arange(3 * 300, dtype=np.uint8).reshape(3, 300)
    labels = Values([b"", b"left out", b"longer"], np.array([False, True, False]))
    columns = [Column("image", "bytea"), Column("label", "text")]
    assert encoded(columns, [Values(pixels), labels]) == [
        [bytes(row), label] for row, label in zip(pixels, (b"", None, b"longer"), strict=True)
    ]


def test_strings_of_all_lengths_beside_nulls() -> None:
    words = [b"", "ä".encode(), b"longer than the others"]
    is_null = np.array([True, False, False])
    rows = encoded(
        [Column("a", "text"), Column("b", "bigint"), Column("c", "bytea")],
        [Values(words), Values(np.arange(3), is_null), Values(np.arange(6, dtype=np.uint8).reshape(3, 2))],
    )
    assert [row[0] for row in rows] == words
    assert [row[1] for row in rows] == [None, struct.pack(">q", 1), struct.pack(">q", 2)]
    assert [row[2] for row in rows] == [b"\0\1", b"\2\3", b"\4\5"]


def test_column_of_nulls_takes_no_bytes() -> None:
    rows = encoded([Column("a", "text")], [Values([b"", b""], np.array([True, True]))])
    assert rows == [[None], [None]]


def test_fixed_width_text_loses_its_padding() -> None:
    rows = encoded([Column("a", "text")], [Values(np.array([b"a", b"", b"abc"]))])
    assert rows == [[b"a"], [b""], [b"abc"]]


def test_one_long_value_does_not_pad_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary_copy, "MAX_PADDED_BYTES", 4096)
    words = [b"x"] * 100 + [b"y" * 5000] + [b"z"] * 100
    pieces = list(binary_copy.encode_rows([Column("a", "text")], [Values(words)]))
    assert len(pieces) > 1
    assert max(map(len, pieces)) < 4096 + 5000
    assert decoded(b"".join(pieces)) == [[word] for word in words]


@pytest.mark.parametrize("values", [Values([b"a\0b"]), Values(np.array([b"a\0b"]))])
def test_zero_bytes_in_text_are_refused(values: Values) -> None:
    with pytest.raises(InvalidData, match="zero byte"):
        encoded([Column("a", "text")], [values])


def test_numbers_beyond_the_type_are_refused() -> None:
    with pytest.raises(InvalidData, match="does not fit into bigint"):
        encoded([Column("a", "bigint")], [Values(np.array([2**63], np.uint64))])


def test_no_rows_no_bytes() -> None:
    assert encoded([Column("a", "text")], [Values([])]) == []


@pytest.mark.parametrize(
    ("number", "groups", "weight", "negative", "scale"),
    [
        ("0", [0], 0, False, 0),
        ("1", [1], 0, False, 0),
        ("-12345.6789", [1, 2345, 6789], 1, True, 4),
        ("0.00012", [0, 1, 2000], 0, False, 5),
        ("1E+5", [10, 0], 1, False, 0),
        ("100000000", [1, 0, 0], 2, False, 0),
    ],
)
def test_a_numeric_is_counted_in_groups_of_four_digits(
    number: str, groups: list[int], weight: int, negative: bool, scale: int
) -> None:
    head = struct.unpack_from(">hhHh", numeric_bytes(Decimal(number)))
    assert head == (len(groups), weight, 0x4000 if negative else 0, scale)
    assert list(struct.unpack_from(f">{len(groups)}h", numeric_bytes(Decimal(number)), 8)) == groups
