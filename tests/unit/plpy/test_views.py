"""The views of a dataset: what each makes of the fields, and that its layout says what came out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from easeml_plpy.architectures import ARCHITECTURES
from easeml_plpy.calendar_parts import PARTS, calendar_parts, varying_parts
from easeml_plpy.encoder import CategoricalField, Encoder, Field, LabelTarget, NumericField, TensorField
from easeml_plpy.encoding import encode, encoded_shape
from easeml_plpy.layout import ViewColumn
from easeml_plpy.views import VIEWS, task_in, view_of

TARGET = LabelTarget("y", "text", ("no", "yes"))
NUMBER = NumericField(column="n", type="int4", missing=(0,), mean=np.array([1.0]), scale=np.array([2.0]))
TIME = NumericField(column="t", type="timestamp", is_time=True, calendar=("month", "hour"))
TEXT = CategoricalField(column="c", type="text", missing=(0,), categories=("b", "a"))
VECTOR = TensorField(column="v", type="_float4", dtype="f4", shape=(2,), mean=np.zeros(2), scale=np.ones(2))
IMAGE = TensorField(column="i", type="bytea", dtype="u1", shape=(2, 2), mean=np.array([3.0]), scale=np.array([2.0]))
MIXED = (NUMBER, TIME, TEXT, VECTOR)
ROWS = [
    np.array([5.0, np.nan]),
    np.array([86400.0 * 31 + 3600 * 7, np.nan]),
    np.array([1, -1], np.int32),
    np.array([[1, 2], [3, 4]], np.float32),
]


def encoder_of(*inputs: Field) -> Encoder:
    return Encoder(inputs, encoded_shape(inputs), TARGET)


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize(("inputs", "rows"), [(MIXED, ROWS), ((IMAGE,), [np.zeros((2, 2, 2), np.uint8)])])
def test_every_view_has_the_shape_and_the_columns_that_it_declares(
    name: str, inputs: tuple[Field, ...], rows: list[Any]
) -> None:
    encoder = encoder_of(*inputs)
    view = view_of(name, encoder)
    task, encoded = task_in(view, encoder), view.encode(encoder, rows)
    assert encoded.shape == (2, *task.input_shape)
    assert encoded.dtype == task.input_type
    assert task.n_outputs == 2
    assert not task.layout or len(task.layout) == task.n_features


def test_the_standard_view_is_the_encoding_of_before() -> None:
    encoder = encoder_of(*MIXED)
    view = view_of("standard", encoder)
    assert view.encode(encoder, ROWS).tobytes() == encode(encoder, ROWS).tobytes()
    assert (view.shape(encoder), view.layout(encoder)) == (encoder.input_shape, ())


def test_trees_see_numbers_as_they_are_codes_and_the_parts_of_times() -> None:
    encoder = encoder_of(*MIXED)
    known = [5.0, 86400.0 * 31 + 3600 * 7, 2, 7, 1, 1, 2]
    missing = [np.nan, np.nan, np.nan, np.nan, np.nan, 3, 4]
    np.testing.assert_array_equal(VIEWS["tree"].encode(encoder, ROWS), [known, missing])
    assert VIEWS["tree"].layout(encoder) == (
        ViewColumn("number", "n"),
        ViewColumn("number", "t"),
        ViewColumn("number", "t", "month"),
        ViewColumn("number", "t", "hour"),
        ViewColumn("category", "c", cardinality=3),
        ViewColumn("number", "v", "0"),
        ViewColumn("number", "v", "1"),
    )


def test_a_category_that_training_did_not_know_has_a_code_of_its_own_and_is_not_missing() -> None:
    encoder = encoder_of(TEXT)
    codes = np.array([0, 1, 2, -1], np.int32)
    np.testing.assert_array_equal(VIEWS["tree"].encode(encoder, [codes])[:, 0], [0, 1, 2, np.nan])


def test_parts_of_a_moment_are_those_of_the_calendar() -> None:
    moments = np.array(["1969-12-31T23:59:59", "2000-02-29T07:30", "9999-12-31T23:00"], "datetime64[s]").astype(float)
    found = calendar_parts(moments, PARTS).tolist()
    assert found == [[1969, 12, 31, 2, 23], [2000, 2, 29, 1, 7], [9999, 12, 31, 4, 23]]
    assert np.isnan(calendar_parts(np.array([np.nan]), PARTS)).all()
    assert calendar_parts(np.array([1e300, -1e300]), ["year"]).tolist() == [[9999], [1]]


def test_only_parts_that_vary_are_kept() -> None:
    days = np.array(["2020-03-01", "2020-03-02", "NaT"], "datetime64[s]")
    seconds = np.where(np.isnat(days), np.nan, days.astype(np.int64))
    assert varying_parts(seconds) == ("day", "weekday")
    assert varying_parts(np.array([np.nan])) == ()


def test_every_architecture_names_a_view_that_there_is() -> None:
    assert {each.view for each in ARCHITECTURES.values()} <= set(VIEWS)
