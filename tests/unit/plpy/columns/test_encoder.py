"""The encoder that a dataset stores: what is parsed is written back as it was, and bytes come back as fields."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest

from easeml_plpy.columns.encoder import (
    CategoricalField,
    Encoder,
    LabelTarget,
    NumericField,
    TensorField,
    field_from_json,
)
from easeml_plpy.columns.encoding import encode, encoded_shape, fields_from_bytes, fields_to_bytes, row_bytes
from easeml_plpy.columns.running_statistics import Moments, moments_of
from easeml_plpy.prediction.client_row import fields_from_numbers, fields_from_values
from easeml_plpy.server.errors import InvalidData, ShapeMismatch

NUMBER = {"column": "n", "type": "int4", "kind": "numeric", "mean": [0.1], "scale": [2.0], "missing": [0]}
TIME = {**NUMBER, "column": "d", "type": "date", "is_time": True, "missing": []}
TEXT = {"column": "c", "type": "text", "kind": "categorical", "missing": [0], "categories": ["b", "a"]}
ARRAY = {
    "column": "a", "type": "_float4", "kind": "tensor", "dtype": "f4", "shape": [2], "wire": "f4", "wire_rank": 1,
    "mean": [1.0, 2.0], "scale": [1.0, 4.0], "missing": [],
}  # fmt: skip
IMAGE = {
    "column": "i", "type": "bytea", "kind": "tensor", "dtype": "u1", "shape": [2, 2], "mean": [3.0], "scale": [2.0],
    "missing": [],
}  # fmt: skip
WITH_KNOTS = [
    {**NUMBER, "knots": [[0.0, 1.5, 9.0]]},
    {**NUMBER, "knots": [[]]},
    {**TIME, "calendar": ["year", "hour"], "knots": [[0.0]]},
    {**ARRAY, "knots": [[1.0], [2.0, 3.0]]},
]
CODED = [
    {"column": "t", "type": "text", "kind": "text", "analyzer": "words", "width": 8, "missing": [0],
     "tokens": "AQAAAAIAAAA=", "weights": "AACAPwAAAEA="},
    {**TEXT, "targets": {"counts": "AAAA" * 40, "sums": "AAAA" * 80}},
]  # fmt: skip
LABELS = {"column": "y", "type": "text", "task": "classification", "labels": ["no", "yes"]}
VALUE = {"column": "y", "type": "float8", "task": "regression", "mean": 0.5, "scale": 0.25}
MIXED = [NUMBER, TIME, TEXT, ARRAY]


def stored(inputs: list[dict[str, Any]], target: dict[str, Any] = LABELS) -> dict[str, Any]:
    shape = list(encoded_shape([field_from_json(entry) for entry in inputs]))
    return {"inputs": inputs, "input_shape": shape, "target": target}


@pytest.mark.parametrize("target", [LABELS, VALUE], ids=lambda target: target["task"])
@pytest.mark.parametrize("inputs", [[NUMBER], [TIME], [TEXT], [ARRAY], [IMAGE], MIXED, WITH_KNOTS, CODED])
def test_what_is_parsed_is_stored_again_as_it_was(inputs: list[dict[str, Any]], target: dict[str, Any]) -> None:
    value = stored(inputs, target)
    assert Encoder.from_json(value).to_json() == value
    assert Encoder.from_text(json.dumps(value)).to_json() == value


def test_a_caller_who_may_not_see_statistics_gets_kinds_alone() -> None:
    secret = {"mean", "scale", "categories"}
    seen = [field_from_json({key: value for key, value in each.items() if key not in secret}) for each in MIXED]
    assert [type(field) for field in seen] == [NumericField, NumericField, CategoricalField, TensorField]
    assert [field.missing for field in seen] == [(0,), (), (0,), ()]


def test_an_unknown_element_type_is_refused() -> None:
    with pytest.raises(InvalidData, match="unknown type 'f2'"):
        field_from_json({**ARRAY, "dtype": "f2"})


def test_a_row_is_the_same_as_json_and_as_stored_bytes() -> None:
    encoder = Encoder.from_json(stored(MIXED))
    fields = fields_from_values(encoder, {"n": None, "d": "1970-01-02", "c": "a", "a": [2, 6]})
    assert [field.tolist() for field in fields[1:]] == [[86400.0], [1], [[2.0, 6.0]]]
    packed = [
        np.ascontiguousarray(values, field.stored_type) for field, values in zip(encoder.inputs, fields, strict=True)
    ]
    payload = fields_to_bytes(packed)
    assert len(payload) == row_bytes(encoder.inputs)
    encoded = encode(encoder, fields_from_bytes(encoder, payload, 1))
    # The missing number is imputed and flagged; two categories, any other, missing; the array by its own moments.
    time = np.float32((86400.0 - 0.1) / 2.0)
    np.testing.assert_array_equal(encoded, np.float32([[0.0, 1.0, time, 0, 1, 0, 0, 1.0, 1.0]]))
    np.testing.assert_array_equal(encode(encoder, fields), encoded)


def test_an_image_keeps_its_shape_and_may_come_as_numbers_or_hexadecimal() -> None:
    encoder = Encoder.from_json(stored([IMAGE]))
    by_numbers = encode(encoder, fields_from_numbers(encoder, np.array([1, 3, 5, 7], np.uint8)))
    np.testing.assert_array_equal(by_numbers, np.float32([[[-1, 0], [1, 2]]]))
    np.testing.assert_array_equal(encode(encoder, fields_from_values(encoder, {"i": "\\x01030507"})), by_numbers)


def test_damaged_blocks_and_rows_of_another_shape_are_refused() -> None:
    encoder = Encoder.from_json(stored([IMAGE]))
    with pytest.raises(InvalidData, match="a block of 2 rows holds 7 bytes, expected 8"):
        fields_from_bytes(encoder, b"1234567", 2)
    with pytest.raises(ShapeMismatch, match="expected 4 numbers, got 3"):
        fields_from_numbers(encoder, np.zeros(3))
    with pytest.raises(ShapeMismatch, match="lacks the input 'i'"):
        fields_from_values(encoder, {"j": 1})


@pytest.mark.parametrize("is_elementwise", [True, False])
def test_moments_of_parts_are_those_of_the_whole(is_elementwise: bool) -> None:
    values = np.random.default_rng(0).normal(5.0, [1.0, 0.0, 3.0], size=(40, 3))
    values[3, 0] = np.nan
    parts, whole = Moments(is_elementwise), Moments(is_elementwise)
    for start in range(0, 40, 8):
        parts.add(values[start : start + 8])
    whole.add(values)
    found, expected = parts.statistics(), whole.statistics()
    np.testing.assert_allclose(found.mean, expected.mean)
    np.testing.assert_allclose(found.scale, expected.scale)
    assert found.missing == expected.missing == (0,)
    if is_elementwise:
        np.testing.assert_allclose(found.mean, np.nanmean(values, axis=0))
        assert found.scale[1] == 1.0


def test_moments_of_bytes_are_exact() -> None:
    values = np.random.default_rng(0).integers(0, 256, (700, 12, 13)).astype(np.uint8)
    found = Moments(is_elementwise=False)
    found.add(values)
    statistics = found.statistics()
    numbers = [int(each) for each in values.ravel()]
    mean = sum(numbers) / len(numbers)
    assert statistics.mean.tolist() == [mean]
    assert statistics.scale == pytest.approx(
        math.sqrt(math.fsum((each - mean) ** 2 for each in numbers) / len(numbers))
    )
    for part in (values[:300], values[300:300], values[300:]):
        found.add(part)
    assert found.statistics().scale == pytest.approx(statistics.scale)
    white = moments_of(np.full((300, 784), 255, np.uint8), False)  # the largest sums that there are
    assert (white.mean, white.squares) == (255.0, 0.0)


@pytest.mark.parametrize("image", [IMAGE, {**IMAGE, "type": "_float8", "dtype": "f8", "wire": "f8", "wire_rank": 2}])
def test_many_images_are_encoded_as_each_alone(image: dict[str, Any]) -> None:
    encoder = Encoder.from_json(stored([{**image, "shape": [300, 100]}]))
    rows = np.random.default_rng(1).integers(0, 256, (11, 300, 100)).astype(encoder.inputs[0].stored_type)
    alone = np.concatenate([encode(encoder, [row[None]]) for row in rows])
    assert encode(encoder, [rows]).tobytes() == alone.tobytes()
    assert alone.tobytes() == ((rows.astype(np.float64) - 3.0) / 2.0).astype(np.float32).tobytes()


@pytest.mark.parametrize("labels", [("a", "b"), ("\x010\x02", ""), ("\x01", "0\x02\x011\x02"), ("\x01" * 3, "\x02")])
def test_labels_can_be_told_apart_when_they_stand_in_one_text(labels: tuple[str, ...]) -> None:
    target = LabelTarget("y", "text", labels)
    for row in itertools.product(labels, repeat=4):
        assert tuple(target.separator.join(row).split(target.separator)) == row
