"""JSON within bounds: what is at a bound is read, what is beyond it is refused with the argument's name."""

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from easeml_db.decisions.search_space.documents import MAX_DEPTH, MAX_DIGITS, MAX_VALUES, read_document
from easeml_db.errors import InvalidArgument

SMALL = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), lambda inner: st.lists(inner)
)


def nested(n_levels):
    return "[" * n_levels + "]" * n_levels


def depth(value):
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@pytest.mark.parametrize(
    ("within", "beyond", "bound"),
    [
        (nested(MAX_DEPTH + 1), nested(MAX_DEPTH + 2), "at most 8 levels"),
        (json.dumps([1] * (MAX_VALUES - 1)), json.dumps([1] * MAX_VALUES), "at most 10000 values"),
        ("9" * MAX_DIGITS, "9" * (MAX_DIGITS + 1), "JSON"),
        (json.dumps("x" * 999_998), json.dumps("x" * 999_999), "at most 1000000 characters"),
        ("{}", "{", "JSON"),
        ('{"a": {"b": [1]}}', '{"a": ' + nested(9) + "}", "at most 8 levels"),
    ],
)
def test_bounds_are_where_they_are_said_to_be(within, beyond, bound):
    assert read_document("thing", within) == json.loads(within)
    with pytest.raises(InvalidArgument, match=rf"^thing: expected {bound}, got "):
        read_document("thing", beyond)


@settings(max_examples=30)
@given(SMALL)
def test_what_is_small_is_read_as_json_reads_it(value):
    text = json.dumps(value)
    assume(depth(value) <= MAX_DEPTH)
    assert read_document("thing", text) == json.loads(text)
