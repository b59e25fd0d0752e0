"""One row as JSON or as the server stores an array: what is read from it, and what is refused."""

from __future__ import annotations

import math
import struct
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.encoder import Encoder, LabelTarget, NumericField
from easeml_plpy.prediction.client_row import (
    MAX_TEXT_BYTES,
    coded,
    fields_from_rows,
    fields_from_values,
    numbers_of_array,
    row_of_text,
)
from easeml_plpy.server.errors import ShapeMismatch

KIND = CategoricalField(column="kind", type="text", missing=(0,), categories=("a", "true", "1", "1.5", "nan"))
OF_KIND = Encoder((KIND,), (1,), LabelTarget("y", "text", ("a", "b")))


def stored(values: list[float | None], sizes: tuple[int, ...]) -> bytes:
    """A double precision[] as array.h lays it out, without its length word."""
    bounds = struct.pack(f"={2 * len(sizes)}i", *sizes, *(1 for _ in sizes))
    known = b"".join(struct.pack("=d", value) for value in values if value is not None)
    if None not in values:
        return struct.pack("=iiI", len(sizes), 0, 701) + bounds + known
    bits = np.packbits([value is not None for value in values], bitorder="little").tobytes()
    offset = -(-(16 + len(bounds) + len(bits)) // 8) * 8
    head = struct.pack("=iiI", len(sizes), offset, 701) + bounds + bits
    return head.ljust(offset - 4, b"\0") + known


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        ([], ()),
        ([1.5], (1,)),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], (2, 3)),
        ([None], (1,)),
        ([None, 2.0, None, 4.0, 5.0, 6.0, 7.0, 8.0, None, 10.0], (10,)),
        ([1.0, None, 3.0, 4.0], (2, 2)),
    ],
)
def test_numbers_of_a_stored_array_are_its_elements_and_null_is_nan(values: list[float | None], sizes: tuple[int, ...]):
    expected = [np.nan if value is None else value for value in values]
    np.testing.assert_array_equal(numbers_of_array(stored(values, sizes)), expected)


def test_bytes_that_are_no_whole_array_are_refused() -> None:
    whole = stored([None, 2.0], (2,))
    for cut in range(len(whole)):
        with pytest.raises(ShapeMismatch):
            numbers_of_array(whole[:cut])


def test_a_rank_or_size_that_lies_is_refused() -> None:
    for head in ((-1, 0), (2**31 - 1, 0), (1, -8), (1, 2**31 - 1)):
        with pytest.raises(ShapeMismatch):
            numbers_of_array(struct.pack("=iiIii", *head, 701, 2**31 - 1, 1))


def test_a_row_is_an_object() -> None:
    assert row_of_text('{"x": 1, "y": [null, 2.5]}', OF_KIND) == {"x": 1, "y": [None, 2.5]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "got NULL"),
        ("[1]", "got an array"),
        ("3", "got a number"),
        ("", "got other text"),
        ("{1,2}", "got other text"),
        ('{"x": Infinity}', "got other text"),
        ('{"x": ' + "[" * 5000 + "]" * 5000 + "}", "nested too deep"),
        ('{"x": ' + "9" * 5001 + "}", "got other text"),
        (" " * (MAX_TEXT_BYTES + 1), "at most"),
    ],
    ids=range(9),
)
def test_what_is_no_row_is_refused_in_a_line(text: str | None, message: str) -> None:
    with pytest.raises(ShapeMismatch, match=message) as caught:
        row_of_text(text, OF_KIND)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("sql_type", ["int4", "float8", "numeric", "float4", "bool"])
@pytest.mark.parametrize(
    ("value", "number"), [(None, np.nan), (3, 3.0), (-0.1, -0.1), (True, 1.0), (2**70, 2.0**70), ("7", 7.0)]
)
def test_a_number_is_the_one_that_the_server_would_send(sql_type: str, value: Any, number: float) -> None:
    field = NumericField(column="x", type=sql_type, missing=(0,))
    (found,) = fields_from_values(Encoder((field,), (2,), LabelTarget("y", "text", ("a", "b"))), {"x": value})
    expected = np.float64(np.float32(number)) if sql_type == "float4" else number
    assert (found.dtype, found.shape) == (np.float64, (1,))
    np.testing.assert_array_equal(found, [expected])


@pytest.mark.parametrize("value", [10**400, "x", [1.0, 2.0], [], {}])
def test_what_is_no_number_is_refused(value: Any) -> None:
    encoder = Encoder((NumericField(column="x", type="float8"),), (1,), LabelTarget("y", "text", ("a", "b")))
    with pytest.raises(ShapeMismatch, match="input 'x': expected"):
        fields_from_values(encoder, {"x": value})


NUMBERS = tuple(NumericField(column=name, type=kind) for name, kind in (("a", "float8"), ("b", "int4"), ("c", "bool")))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.5, 2, 0], [1.5, 2.0, 0.0]),
        ([None, -(10**30), 1], [np.nan, -1e30, 1.0]),
        ([1.5, 2, True], [1.5, 2.0, 1.0]),
        ([True, None, False], [1.0, np.nan, 0.0]),
    ],
)
def test_numbers_of_a_row_are_read_at_once_as_one_by_one(values: list[Any], expected: list[float]) -> None:
    encoder = Encoder(NUMBERS, (3,), LabelTarget("y", "text", ("no", "yes")))
    fields = fields_from_values(encoder, dict(zip("abc", values, strict=True)))
    assert [(each.shape, each.dtype) for each in fields] == [((1,), np.float64)] * 3
    np.testing.assert_array_equal(np.concatenate(fields), expected)


@pytest.mark.parametrize("value", ["x", [1.5, 2], {"x": 1}, 10**400])
def test_what_is_no_number_is_refused_beside_numbers(value: Any) -> None:
    encoder = Encoder(NUMBERS, (3,), LabelTarget("y", "text", ("no", "yes")))
    with pytest.raises(ShapeMismatch, match="input 'b': expected"):
        fields_from_values(encoder, {"a": 1.5, "b": value, "c": None})


def moment(text: Any, sql_type: str = "timestamptz") -> float:
    field = NumericField(column="at", type=sql_type, is_time=True)
    (found,) = fields_from_values(Encoder((field,), (1,), LabelTarget("y", "text", ("a", "b"))), {"at": text})
    return float(found[0])


EVENING = 1_924_970_400.0  # 2030-12-31 18:00 UTC


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2030-12-31 18:00", EVENING),
        ("2030-12-31T18", EVENING),
        ("2030-12-31T18:00:00Z", EVENING),
        ("2030-12-31T18:00:00.123456+00:00", EVENING + 0.123456),
        ("2030-12-31T18:00:00.1234567Z", EVENING + 0.123457),
        ("2030-12-31", EVENING - 18 * 3600),
        ("2030-12-31T23:30:00+0530", EVENING),
        ("2030-12-31T23:30:00+05:30", EVENING),
        ("2030-12-31 23:00:00+05", EVENING),
        ("2030-12-31 23:30:12+05:30:12", EVENING),
        ("2030-12-31 13:00:00-05", EVENING),
        ("20301-12-31T00:00:00+00:00", 578_501_913_600.0),
        ("0044-03-15T12:00:00+00:00 BC", -63_517_780_800.0),
        ("0001-12-31T00:00:00+00:00 BC", -62_135_683_200.0),
        ("294276-12-31T23:59:59+00:00", 9_224_318_015_999.0),
        (1_924_970_400, EVENING),
        (1.5, 1.5),
    ],
)
def test_times_as_the_server_writes_them_are_its_moments(text: Any, seconds: float) -> None:
    assert moment(text) == seconds


def test_an_offset_counts_only_where_the_type_has_a_zone() -> None:
    assert moment("2030-12-31T18:00:00+0530", "timestamp") == EVENING
    assert moment("5874897-12-31", "date") == 185_331_706_992_000.0


@pytest.mark.parametrize(
    "value",
    [
        *("2030", "2030-12", "20301231", "2030-1-1", "300000-01-01", "5874897-12-31", "0000-01-01", "٢٠٣٠-12-31"),
        *("2030-02-30", "2030-12-31 25:00", "2030-12-31 18:60", "2030-12-31 18:00:60", "2030-12-31 18:00.5"),
        *(
            "2030-12-31T18:00:00+530",
            "2030-12-31T18:00:00+530:00",
            "2030-12-31T18:00:00+05:30:",
            "infinity",
            "2030-12-31 ",
        ),
        *("2030-12-31T18:00:00+16", "2030-12-31T18:00:00+05:60", "NaT", "2030-12-31 BC BC", "2030-12-31" + "0" * 100),
        *(np.datetime64("2030-12-31"), np.datetime64("2030-12-31T18:00", "ns"), True, [1.5], {"at": 1}),
    ],
    ids=repr,
)
def test_what_is_no_time_is_refused_and_no_other_moment(value: Any) -> None:
    with pytest.raises(ShapeMismatch, match="input 'at': expected a date or time such as"):
        moment(value)


@pytest.mark.parametrize("values", list(permutations([True, 1, "a", None, 1.5])))
def test_the_code_of_a_category_is_the_same_beside_any_other(values: tuple[Any, ...]) -> None:
    expected = {True: 1, "a": 0, None: -1, 1.5: 3}
    assert coded(KIND, values).tolist() == [
        2 if value is not True and value == 1 else expected[value] for value in values
    ]


def test_a_number_is_the_category_that_the_server_writes() -> None:
    """jsonb keeps the digits of a number, and its text is what training has seen."""
    width = CategoricalField(
        column="size.width", within="size", type="jsonb", categories=("1.50", "1.5", "0.0000001", "1")
    )
    height = NumericField(column="size.height", within="size", type="jsonb")
    encoder = Encoder((width, height), (2,), OF_KIND.target)
    for code, text in enumerate(width.categories):
        row = row_of_text(f'{{"size": {{"width": {text}, "height": 2.50}}}}', encoder)
        assert [each.tolist() for each in fields_from_values(encoder, row)] == [[code], [2.5]]
    with pytest.raises(ShapeMismatch, match="got a number"):
        row_of_text("1.50", encoder)


def test_a_text_that_pandas_has_as_nan_is_missing() -> None:
    words = TextField(column="kind", type="text", analyzer="words", width=2)
    for nan in (math.nan, np.float64(np.nan)):
        assert coded(KIND, ["a", nan]).tolist() == [0, -1]
        assert coded(words, [nan]).tolist() == coded(words, [None]).tolist()
        assert fields_from_rows(OF_KIND, [{"kind": nan}, {"kind": "a"}])[0].tolist() == [-1, 0]
    assert coded(KIND, ["nan"]).tolist() == [4]


def test_the_numbers_that_pandas_makes_of_categories_with_gaps_are_the_categories() -> None:
    assert coded(KIND, [1.0, math.nan, 1.5, 2.0]).tolist() == [2, -1, 3, 5]
    told_apart = CategoricalField(column="kind", type="text", categories=("1", "1.0"))
    assert coded(told_apart, [1, 1.0, "1.0"]).tolist() == [0, 1, 1]
    assert coded(CategoricalField(column="x.kind", within="x", type="jsonb", categories=("1",)), [1.0]).tolist() == [1]


@pytest.mark.parametrize("field", [KIND, TextField(column="kind", type="text", analyzer="words", width=2)])
@pytest.mark.parametrize("value", [["a"], {"a": 1}, b"a", object()], ids=["array", "object", "bytes", "other"])
def test_what_has_no_text_is_refused(field: CategoricalField | TextField, value: Any) -> None:
    encoder = Encoder((field,), (1,), OF_KIND.target)
    for fields_of in (
        lambda: fields_from_rows(encoder, [{"kind": value}]),
        lambda: fields_from_values(encoder, {"kind": value}),
    ):
        with pytest.raises(ShapeMismatch, match="input 'kind': expected a text, got"):
            fields_of()
