"""Series and trees as clients write them, as blocks keep them, and as sessions have them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_plpy.columns.encoder import Encoder, LabelTarget, ObjectsField
from easeml_plpy.columns.object_rows import MOST_DEPTH, Objects, numbers_of, packed, standardised, unpacked
from easeml_plpy.prediction.task_objects import MOST_OBJECTS, check_length, objects_of, series_of_numbers
from easeml_plpy.server.errors import InvalidData, ShapeMismatch
from easeml_plpy.tasks.task_columns import columns_of_objects, objects_field
from tests.unit.plpy.architectures.object_rows import field_of

CHAIN = field_of(2, "next")
TREE = field_of(1, "left", "right", name="x")
PAIR = ObjectsField(
    column="input", type="_float4", dtype="f4", tensors=(("a", (2,)), ("b", (1, 2))), recursive=("next",)
).of_length(1)


def test_a_series_is_a_list_or_an_object_that_leads_to_the_next() -> None:
    listed = objects_of(CHAIN, [[1, 2], [3, 4]])
    nested = objects_of(CHAIN, {"field1": [1, 2], "next": {"field1": [3, 4], "next": None}})
    for found in (listed, nested, series_of_numbers(CHAIN, np.arange(1.0, 5.0))):
        assert found.numbers.tolist() == [[1, 2], [3, 4]]
        assert found.links.shape == (2, 0)
    assert objects_of(field_of(1, "next"), [1, 2, 3]).numbers.tolist() == [[1], [2], [3]]
    assert objects_of(PAIR, [{"a": [1, 2], "b": [[3, 4]]}]).numbers.tolist() == [[1, 2, 3, 4]]


def test_a_tree_leads_from_an_object_to_later_ones_only() -> None:
    tree = {"x": [0], "left": {"x": [1], "right": {"x": [2]}}, "right": {"x": [3]}}
    found = objects_of(TREE, tree)
    assert found.numbers.ravel().tolist() == [0, 1, 2, 3]
    assert found.links.tolist() == [[2, 4], [0, 3], [0, 0], [0, 0]]


def deep(n_levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = {"x": [0]}
    for _ in range(n_levels - 1):
        tree = {"x": [0], "left": tree}
    return tree


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (CHAIN, [], "expected 1 to 10000 objects, got 0"),
        (CHAIN, [[1, 2]] * (MOST_OBJECTS + 1), "expected 1 to 10000 objects, got 10001"),
        (CHAIN, [[1, 2, 3]], r"field1: expected Tensor\[2\] of each object, got Tensor\[3\]"),
        (CHAIN, [[1, 2], [3]], r"field1: expected Tensor\[2\] of each object, got \[3\] in object 2"),
        (CHAIN, [[1, 2], [1, "x"]], r"got \[1, \"x\"\] in object 2"),
        (CHAIN, [[1, None]], "expected finite numbers"),
        (CHAIN, [[1, 1e39]], "expected finite numbers that a real can hold"),
        (CHAIN, 7, "expected a list, or an object that leads to the next, got 7"),
        (CHAIN, [{"field1": [1, 2], "next": None}], "expected a list of objects that lead to no other"),
        (CHAIN, {"field1": [1, 2], "next": 5}, "expected an object or null, got 5"),
        (CHAIN, {"field2": [1, 2]}, "expected an object with field1, next"),
        (PAIR, [[1, 2]], "expected objects with a, b"),
        (PAIR, [{"a": [1, 2]}], "expected an object with a, b, next"),
        (TREE, [[1]], "expected an object with its recursive fields"),
        (TREE, {"x": [1], "middle": {"x": [1]}}, "expected an object with x, left, right"),
        (TREE, deep(MOST_DEPTH + 1), "expected a tree of at most 256 levels, got more"),
    ],
)
def test_what_does_not_fit_is_named(field: ObjectsField, value: Any, message: str) -> None:
    with pytest.raises(ShapeMismatch, match=message):
        objects_of(field, value)


def test_numbers_alone_are_a_series_of_whole_objects_and_no_tree() -> None:
    with pytest.raises(ShapeMismatch, match="expected 2 numbers for each of 1 to 10000 objects, got 3"):
        series_of_numbers(CHAIN, np.zeros(3))
    with pytest.raises(ShapeMismatch, match="expected finite numbers"):
        series_of_numbers(CHAIN, np.array([1.0, np.nan]))
    with pytest.raises(ShapeMismatch, match="expected a tree, got numbers"):
        series_of_numbers(TREE, np.zeros(3))
    with pytest.raises(ShapeMismatch, match="at most 1 objects, as in the longest example, got 2"):
        check_length(CHAIN, objects_of(CHAIN, [[1, 2], [3, 4]]))


def test_the_deepest_tree_that_is_legal_is_read() -> None:
    assert len(objects_of(TREE, deep(MOST_DEPTH)).numbers) == MOST_DEPTH


def links(rng: np.random.Generator, n_objects: int, n_links: int) -> np.ndarray:
    """Return the links of a tree: each object but the first hangs on a free place of an earlier one."""
    found = np.zeros((n_objects, n_links), np.int32)
    for place in range(1, n_objects if n_links else 0):
        free = np.argwhere(found[:place] == 0)
        found[tuple(free[rng.integers(len(free))])] = place + 1
    return found


@given(st.lists(st.integers(1, 6), max_size=9), st.integers(0, 3))
def test_blocks_give_back_what_was_packed(lengths: list[int], n_links: int) -> None:
    rng = np.random.default_rng(0)
    field = field_of(2, *"abc"[:n_links] or "a").of_length(6)
    rows = [Objects(rng.normal(size=(n, 2)).astype(np.float32), links(rng, n, field.n_links)) for n in lengths]
    found = unpacked(field, packed(rows), len(rows))
    assert found.shape == (len(rows), 6, 3 + field.n_links)
    for values, row in zip(found, rows, strict=True):
        n = len(row.numbers)
        assert np.array_equal(values[:n, :2], row.numbers)
        assert values[:, 2].tolist() == [1.0] * n + [0.0] * (6 - n)
        assert np.array_equal(values[:n, 3:], row.links)
        assert not values[n:].any()


def test_a_damaged_block_is_refused() -> None:
    field = CHAIN.of_length(3)
    block = packed([objects_of(CHAIN, [[1, 2]] * 3)])
    for wrong in (b"", block[:-1], block + b"\0", packed([objects_of(CHAIN, [[1, 2]] * 4)]), b"\xff" * len(block)):
        with pytest.raises(InvalidData, match="a block of 1 series or trees is damaged"):
            unpacked(field, wrong, 1)


def test_only_objects_that_there_are_count_and_are_standardised() -> None:
    field = CHAIN.of_length(3)
    rows = unpacked(field, packed([objects_of(CHAIN, [[1, 2]]), objects_of(CHAIN, [[3, 4], [5, 6]])]), 2)
    assert numbers_of(field, rows).tolist() == [[1, 2], [3, 4], [5, 6]]
    measured = ObjectsField(**{**vars(field), "mean": np.array([3.0, 4.0]), "scale": np.array([2.0, 1.0])})
    found = standardised(measured, rows)
    assert found[0].tolist() == [[-1, -2, 1], [0, 0, 0], [0, 0, 0]]


def test_the_encoder_keeps_what_objects_are() -> None:
    encoder = Encoder((TREE.of_length(5),), (5, 4), LabelTarget("output", "text", ("a", "b")))
    again = Encoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again.objects is not None
    assert (again.objects.tensors, again.objects.recursive, again.objects.shape) == (
        (("x", (1,)),),
        ("left", "right"),
        (5, 4),
    )
    assert again.to_json() == encoder.to_json()


def test_columns_are_written_as_sql_has_them() -> None:
    inputs = [
        {"name": "x", "column": "input", "shape": [1], "n_values": 1, "role": "object"},
        {"name": "left", "column": "input_left", "shape": [], "n_values": 1, "role": "link"},
        {"name": "right", "column": "input_right", "shape": [], "n_values": 1, "role": "link"},
    ]
    specification = {"inputs": inputs, "recursive": ["left", "right"]}
    found = columns_of_objects(inputs, objects_of(objects_field(specification), {"x": [1], "right": {"x": [2]}}))
    assert found == {"input": "{{1.0}, {2.0}}", "input_left": "{null, null}", "input_right": "{2, null}"}


def chain(n_levels: int) -> list[list[int]]:
    return [[place, 0] for place in range(2, n_levels + 1)] + [[0, 0]]


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ([[2, 0], [1, 0]], "row 2 of a block is no tree: object 2 leads to object 1, which is not behind it"),
        ([[1, 0]], "object 1 leads to object 1, which is not behind it"),
        ([[0, 0], [0, -1]], "object 2 leads to object -1, which is not behind it"),
        ([[2, 0], [0, 4]], "object 2 leads to object 4, which is not behind it"),
        ([[2, 3], [3, 0], [0, 0]], "row 2 of a block is no tree: object 2 leads to object 3, as another does"),
        ([[2, 2], [0, 0]], "object 1 leads to object 2, as another does"),
        (chain(MOST_DEPTH + 1), f"object {MOST_DEPTH + 1} is more than 256 levels deep"),
    ],
)
def test_a_block_whose_links_are_no_tree_is_refused_with_its_place(links: list[list[int]], said: str) -> None:
    fine = Objects(np.zeros((MOST_DEPTH, 1)), np.array(chain(MOST_DEPTH), np.int32))
    forged = Objects(np.zeros((len(links), 1)), np.array(links, np.int32))
    assert unpacked(TREE.of_length(MOST_DEPTH), packed([fine, fine]), 2).shape == (2, MOST_DEPTH, 4)
    with pytest.raises(InvalidData, match=said):
        unpacked(TREE.of_length(MOST_DEPTH + 1), packed([fine, forged, fine]), 3)
