"""Lines of JSON are read as the server would read them; what is no JSON is named by line and column."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_loaders import json_lines
from easeml_loaders.json_lines import Json, inputs_of, lines_of_json, read_json
from easeml_plpy.server.errors import InvalidData

VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text('ab\n\\"ü', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, min_size=2, max_size=5))
def test_each_line_is_an_input(values: list[Json]) -> None:
    text = "\n\n".join(json.dumps(value) for value in values)
    assert inputs_of(text, "x") == [(2 * k + 1, value) for k, value in enumerate(values)]


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\u0085"])
def test_only_an_end_of_line_ends_a_line(inside: str) -> None:
    text = f'["a{inside}b"]\r\n["c"]\n'
    assert inputs_of(text, "x") == [(1, [f"a{inside}b"]), (2, ["c"])]


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidData, match="x, line 1: no JSON"):
        inputs_of(b'["\xff"]'.decode(errors="surrogateescape"), "x")


@given(VALUES)
def test_one_input_may_stand_on_several_lines(value: Json) -> None:
    ((_, found),) = inputs_of("\n" + json.dumps(value, indent=1), "x")
    assert found == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1, 2,, 3]", "x, line 1, column 7: no JSON"),
        ("[1]\n[2]\n\n[3", "x, line 4, column 3: no JSON"),
        ('{\n "a": [1,\n  }\n', "x, line 3, column 3: no JSON"),
        ("[1] [2]", "x, line 1, column 5: no JSON: Extra data"),
        ("[NaN]", "NaN is no number of JSON"),
        ("[1]\n[-Infinity]", "line 2: no JSON: -Infinity is no number"),
        ('["\\u0000"]', "the server takes no"),
        ('["\\ud800"]', "line 1: no JSON"),
        ("[" * 100_000, "nested too deep"),
        (" \n", "expected JSON, got nothing"),
    ],
)
def test_what_is_no_json_is_named_by_its_place(text: str, told: str) -> None:
    with pytest.raises(InvalidData) as refused:
        inputs_of(text, "x")
    assert told in str(refused.value)


def test_texts_beyond_ascii_are_read() -> None:
    assert read_json('"\\u00fc\\ud83d\\ude00"', "x") == "ü😀"


def test_parts_know_the_lines_of_their_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "MOST_BYTES", 9)
    file = tmp_path / "lines"
    file.write_text("[1]\n\n[2]\n[3]\n[4]\n")
    found = [(part.lines, json.loads(part.examples)) for part in lines_of_json(file)]
    assert found == [([1, 3, 4], [[1], [2], [3]]), ([5], [[4]])]


def test_a_file_of_another_coding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b'["\xfc"]\n')
    with pytest.raises(InvalidData, match="expected JSON in UTF-8"):
        list(lines_of_json(tmp_path / "lines"))
