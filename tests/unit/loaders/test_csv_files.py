"""CSV: what types are inferred, and what is refused with which line."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import numpy as np
import pytest

from easeml_db.errors import InvalidArgument, InvalidData
from easeml_loaders import Source, csv_files
from easeml_loaders.csv_files import csv_source


@pytest.fixture
def csv_file(tmp_path: Path) -> Path:
    return tmp_path / "data.csv"


def types_of(source: Source) -> list[str]:
    return [column.element for column in source.columns]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["1", "-2", ""], "bigint"),
        (["9223372036854775807"], "bigint"),
        (["9223372036854775808"], "text"),
        (["0123"], "text"),
        (["+49123"], "text"),
        (["1_000"], "text"),
        (["١٢"], "text"),
        (["1", "2.5", "1e-3", "nan", "-inf", ".5", "3."], "double precision"),
        (["1.5", "12345678901234567890"], "text"),
        (["1e999"], "text"),
        (["true", "F", "False"], "boolean"),
        (["1", "true"], "text"),
        (["yes"], "text"),
        (["", ""], "text"),
        (["1", "x"], "text"),
        (["1.5", "0.12345678901234568"], "double precision"),
        (["1.5", "1.2345678901234567890"], "numeric"),
        (["2030-02-28", "1969-12-31", ""], "date"),
        (["2030-02-30"], "text"),
        (["28.02.2030"], "text"),
        (["2030-02-28", "2030-02-28 23:59", "2030-02-28T23:59:58.123456"], "timestamp without time zone"),
        (["2030-02-28 25:00"], "text"),
        (["2030-02-28 23:59:00+01", "2030-02-28T23:59Z", "2030-02-28 23:59-05:30"], "timestamp with time zone"),
        (["1", "NA", "?", "3"], "bigint"),
        (["NA", "2030-02-28"], "date"),
        (["2030/02/28", "1969-12-31"], "date"),
        (["2030/02/28 12:00", "1969/12/31 23:59:59.5"], "timestamp without time zone"),
        (["2030/02-28"], "text"),
        (["28/02/2030"], "text"),
        (["NA", "x"], "text"),
        (["NA", "NA"], "text"),
    ],
)
def test_inferred_type(csv_file: Path, fields: list[str], expected: str) -> None:
    csv_file.write_text("a,b\n" + "".join(f"{field},x\n" for field in fields))
    assert types_of(csv_source(csv_file))[0] == expected


def test_type_holds_over_all_batches(csv_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "CHUNK_ROWS", 2)
    csv_file.write_text("a,b\n1,1\n2,2\n3,3\n4,x\n5.5,5\n")
    source = csv_source(csv_file)
    assert types_of(source) == ["double precision", "text"]
    assert source.n_rows == 5
    chunks = list(source.chunks())
    assert np.concatenate([np.asarray(chunk[0].data) for chunk in chunks]).tolist() == [1, 2, 3, 4, 5.5]
    assert [word for chunk in chunks for word in chunk[1].data] == [b"1", b"2", b"3", b"x", b"5"]


def test_nulls_are_empty_fields_and_the_words_given(csv_file: Path) -> None:
    csv_file.write_text('a,b\n1,NA\n"",x\nNA,y\n')
    (chunk,) = csv_source(csv_file, nulls=["NA"]).chunks()
    assert chunk[0].is_null is not None
    assert chunk[0].is_null.tolist() == [False, True, True]
    assert chunk[1].is_null is not None
    assert chunk[1].is_null.tolist() == [True, False, False]


def test_gzip_byte_order_mark_and_quoted_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress('\ufeffa;"b;""c"\r\n1;"x\r\ny"\r\n\r\n'.encode()))
    source = csv_source(path, delimiter=";")
    assert [column.name for column in source.columns] == ["a", 'b;"c']
    (chunk,) = source.chunks()
    assert chunk[1].data == [b"x\r\ny"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty, expected a header"),
        (b"a,a\n", "line 1: the column name 'a' stands there twice"),
        (b"a,,b\n", "line 1: column 2 has no name"),
        (b"a," + b"b" * 64 + b"\n", "line 1: column name"),
        (b"a,b\n1,2\n1\n", "line 3: expected 2 fields, got 1"),
        (b'a,b\n"x\ny",2\n1,2,3\n', "line 4: expected 2 fields, got 3"),
        (b"a,b\n1,\xff\n", "line 2: byte 3 is not UTF-8"),
        (b"a,b\n1,\0\n", "line 2: a zero byte"),
        (b'a,b\n1,"2\n', "line 2: unexpected end of data"),
        (b"\x1f\x8b\x08\0broken", "damaged or cut off"),
    ],
)
def test_refused_with_file_and_line(csv_file: Path, content: bytes, message: str) -> None:
    csv_file.write_bytes(content)
    with pytest.raises(InvalidData, match=message) as caught:
        csv_source(csv_file)
    assert str(csv_file) in str(caught.value)


def test_declared_types_are_wider_than_guesses_and_checked(csv_file: Path) -> None:
    csv_file.write_text("a,b,c\n007,1,1\n+8,0,2\n")
    source = csv_source(csv_file, types={"a": "int2", "b": "boolean", "c": "real"})
    assert types_of(source) == ["smallint", "boolean", "real"]
    (chunk,) = source.chunks()
    assert [np.asarray(values.data).tolist() for values in chunk] == [[7, 8], [True, False], [1.0, 2.0]]


@pytest.mark.parametrize(
    ("kind", "field"), [("smallint", "40000"), ("real", "1e40"), ("boolean", "2"), ("bigint", "x")]
)
def test_field_that_is_not_of_the_declared_type_is_named(csv_file: Path, kind: str, field: str) -> None:
    csv_file.write_text(f"a\n1\n{field}\n")
    with pytest.raises(InvalidData, match=f"line 3: column 'a' is {kind}, got '{field}'"):
        csv_source(csv_file, types={"a": kind})


@pytest.mark.parametrize(("types", "message"), [({"z": "text"}, "no column 'z'"), ({"a": "money"}, "type 'money'")])
def test_unknown_column_or_type_is_refused(csv_file: Path, types: dict[str, str], message: str) -> None:
    csv_file.write_text("a\n1\n")
    with pytest.raises(InvalidArgument, match=message):
        csv_source(csv_file, types=types)


def test_types_of_the_table_hold_for_columns_not_declared(csv_file: Path) -> None:
    csv_file.write_text("a,b\n1,1\n")
    source = csv_source(csv_file, types={"a": "text"}, table_types={"a": "real", "b": "double precision", "c": "x"})
    assert types_of(source) == ["text", "double precision"]


def test_header_alone_is_an_empty_source(csv_file: Path) -> None:
    csv_file.write_text("a,b\n")
    source = csv_source(csv_file)
    assert (source.n_rows, types_of(source), list(source.chunks())) == (0, ["text", "text"], [])


@pytest.mark.parametrize("header", ["age, wage, sex", "age,wage,sex"])
def test_a_space_after_each_delimiter_is_left_out_and_a_note_says_so(csv_file: Path, header: str) -> None:
    csv_file.write_text(f'{header}\n39, 77516, M\n50, ?, "F, or M"\n')
    source = csv_source(csv_file)
    assert [(column.name, column.element) for column in source.columns] == [
        ("age", "bigint"),
        ("wage", "bigint"),
        ("sex", "text"),
    ]
    (chunk,) = source.chunks()
    assert chunk[1].is_null is not None
    assert chunk[1].is_null.tolist() == [False, True]
    assert chunk[2].data == [b"M", b"F, or M"]
    assert "fields begin with a space, which is left out" in source.notes[0]
    assert "column 'wage' is bigint: '?' (1) read as NULL" in source.notes[1]


@pytest.mark.parametrize(
    ("text", "delimiter", "last"),
    [
        ("a,b,c\n1, x, y\n2,x, y\n", ",", b" y"),
        ("a,b,c\n1,x, y\n", ",", b" y"),
        ("a\n y\n", ",", b" y"),
        ('a b c\n1 "" " y"\n', " ", b" y"),
    ],
)
def test_a_space_before_some_fields_is_part_of_them(csv_file: Path, text: str, delimiter: str, last: bytes) -> None:
    csv_file.write_text(text)
    source = csv_source(csv_file, delimiter=delimiter)
    assert source.notes == ()
    (chunk,) = source.chunks()
    data = chunk[-1].data
    assert isinstance(data, list)
    assert data[-1] == last


def test_delimiter_must_be_one_character(csv_file: Path) -> None:
    with pytest.raises(InvalidArgument, match="one character"):
        csv_source(csv_file, delimiter="||")


def test_words_for_missing_values_are_null_beside_numbers_and_a_note_says_so(csv_file: Path) -> None:
    csv_file.write_text("age,country\n1,NA\nNA,DE\nNA,NA\n-,FR\n")
    source = csv_source(csv_file)
    (chunk,) = source.chunks()
    assert chunk[0].is_null is not None
    assert chunk[0].is_null.tolist() == [False, True, True, True]
    assert chunk[1] == ([b"NA", b"DE", b"NA", b"FR"], None)
    (note,) = source.notes
    assert "column 'age' is bigint: 'NA' (2), '-' (1) read as NULL" in note


@pytest.mark.parametrize("word", ["NaN", "nan", "NAN"])
def test_no_number_is_null_beside_numbers_and_a_note_says_so(csv_file: Path, word: str) -> None:
    csv_file.write_text(f"age,name\n1,Ann\n{word},{word}\n0,Bo\n")
    source = csv_source(csv_file)
    assert types_of(source) == ["bigint", "text"]
    (chunk,) = source.chunks()
    assert chunk[0].is_null is not None
    assert chunk[0].is_null.tolist() == [False, True, False]
    assert chunk[1].data == [b"Ann", word.encode(), b"Bo"]
    assert f"column 'age' is bigint: '{word}' (1) read as NULL" in source.notes[0]


def test_a_word_for_null_that_the_user_named_needs_no_note(csv_file: Path) -> None:
    csv_file.write_text("age\n1\nNA\n")
    assert csv_source(csv_file, nulls=["NA"]).notes == ()


def test_times_are_counted_from_2000_as_the_server_does(csv_file: Path) -> None:
    csv_file.write_text("d,t,z\n1999-12-31,2000-01-01 00:00:01.5,2000-01-01 01:00+01:00\n")
    (chunk,) = csv_source(csv_file).chunks()
    assert [np.asarray(values.data).tolist() for values in chunk] == [[-1], [1_500_000], [0]]


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_a_header_with_another_delimiter_is_refused_with_the_option(csv_file: Path, mark: str) -> None:
    csv_file.write_text(f"a{mark}b\n1,5{mark}2\n")
    with pytest.raises(InvalidData, match="expected columns separated by ','") as caught:
        csv_source(csv_file)
    assert (caught.value.hint or "").startswith("Give --delimiter ")
    assert types_of(csv_source(csv_file, delimiter=mark, types={"a": "text"})) == ["text", "bigint"]


def test_a_declared_date_that_is_none_says_how_to_write_it(csv_file: Path) -> None:
    csv_file.write_text("Date Egg\n2030-12-31\n31.12.2030\n")
    with pytest.raises(InvalidData, match=r"line 3: column 'Date Egg' is date, got '31\.12\.2030'") as caught:
        csv_source(csv_file, types={"Date Egg": "date"})
    assert "2030-12-31" in (caught.value.hint or "")


def test_a_hundred_thousand_columns_are_refused_by_the_header_alone(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    row = ",".join(str(k) for k in range(100_000))
    path.write_text("\n".join([",".join(f"c{k}" for k in range(100_000)), *[row] * 50]))
    began = time.process_time()
    with pytest.raises(InvalidData, match="expected at most 1600 columns, got 100000"):
        csv_source(path)
    assert time.process_time() - began < 1
