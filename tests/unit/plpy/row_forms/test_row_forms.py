"""The views of a dataset: what each makes of the fields, and that its layout says what came out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from easeml_plpy.architectures.tables.sparse_rows import SparseRows
from easeml_plpy.columns.calendar_parts import PARTS, calendar_parts, varying_parts
from easeml_plpy.columns.encoder import (
    CategoricalField,
    Encoder,
    Field,
    LabelTarget,
    NumericField,
    TensorField,
    TextField,
)
from easeml_plpy.columns.encoding import encode, encoded_shape
from easeml_plpy.columns.layout import FormColumn
from easeml_plpy.columns.one_row_math import RowNumbers
from easeml_plpy.columns.target_statistics import MANY, TargetStatistics
from easeml_plpy.columns.tokens import Tokenizer
from easeml_plpy.row_forms import ROW_FORMS, row_form_of, task_in
from easeml_plpy.row_forms.table import TABLE, positions
from easeml_plpy.trainers import ARCHITECTURES

TARGET = LabelTarget("y", "text", ("no", "yes"))
NUMBER = NumericField(
    column="n",
    type="int4",
    missing=(0,),
    mean=np.array([1.0]),
    scale=np.array([2.0]),
    knots=(np.array([0.0, 1.0, 5.0, 9.0]),),
)
TIME = NumericField(
    column="t", type="timestamp", is_time=True, calendar=("year", "month", "hour"), knots=(np.array([0.0, 1e9]),)
)
ENDS = (np.array([0.0, 4.0]),)
TEXT = CategoricalField(column="c", type="text", missing=(0,), categories=("b", "a"))
VECTOR = TensorField(
    column="v", type="_float4", dtype="f4", shape=(2,), mean=np.zeros(2), scale=np.ones(2), knots=ENDS * 2
)
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


@pytest.mark.parametrize("name", ROW_FORMS)
@pytest.mark.parametrize(("inputs", "rows"), [(MIXED, ROWS), ((IMAGE,), [np.zeros((2, 2, 2), np.uint8)])])
def test_every_view_has_the_shape_and_the_columns_that_it_declares(
    name: str, inputs: tuple[Field, ...], rows: list[Any]
) -> None:
    encoder = encoder_of(*inputs)
    view = row_form_of(name, encoder)
    task, encoded = task_in(view, encoder), view.encode(encoder, rows, None)
    assert encoded.shape == (2, *task.input_shape)
    assert encoded.dtype == task.input_type
    assert task.n_outputs == 2
    assert not task.layout or len(task.layout) == task.n_features


def test_the_standard_view_is_the_encoding_of_before() -> None:
    encoder = encoder_of(*MIXED)
    view = row_form_of("standard", encoder)
    assert view.encode(encoder, ROWS, None).tobytes() == encode(encoder, ROWS).tobytes()
    assert (view.shape(encoder), view.layout(encoder)) == (encoder.input_shape, ())


def test_trees_see_numbers_as_they_are_codes_and_the_parts_of_times() -> None:
    encoder = encoder_of(*MIXED)
    known = [5.0, 86400.0 * 31 + 3600 * 7, 1970, 2, 7, 1, 1, 2]
    missing = [np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, 3, 4]
    np.testing.assert_array_equal(ROW_FORMS["tree"].encode(encoder, ROWS, None), [known, missing])
    assert ROW_FORMS["tree"].layout(encoder) == (
        FormColumn("number", "n"),
        FormColumn("number", "t"),
        FormColumn("number", "t", "year"),
        FormColumn("number", "t", "month"),
        FormColumn("number", "t", "hour"),
        FormColumn("category", "c", cardinality=3),
        FormColumn("number", "v", "0"),
        FormColumn("number", "v", "1"),
    )


def test_a_category_that_training_did_not_know_has_a_code_of_its_own_and_is_not_missing() -> None:
    encoder = encoder_of(TEXT)
    codes = np.array([0, 1, 2, -1], np.int32)
    np.testing.assert_array_equal(ROW_FORMS["tree"].encode(encoder, [codes], None)[:, 0], [0, 1, 2, np.nan])


def test_networks_see_positions_among_knots_flags_and_codes() -> None:
    encoder = encoder_of(*MIXED)
    moment = (86400.0 * 31 + 3600 * 7) / 1e9
    known = np.float32([2 / 3, 0, moment, 1, 7, 1, 1 / 4, 2 / 4])
    missing = np.float32([0.5, 1, 0.5, 12, 24, 3, 3 / 4, 4 / 4])
    np.testing.assert_array_equal(ROW_FORMS["table"].encode(encoder, ROWS, None), [known, missing])
    assert ROW_FORMS["table"].layout(encoder) == (
        FormColumn("number", "n", cardinality=3),
        FormColumn("flag", "n"),
        FormColumn("number", "t", cardinality=1),
        FormColumn("category", "t", "month", 13),
        FormColumn("category", "t", "hour", 25),
        FormColumn("category", "c", cardinality=4),
        FormColumn("number", "v", "0", 1),
        FormColumn("number", "v", "1", 1),
    )


def test_a_position_is_linear_between_knots_and_clipped_to_what_training_saw() -> None:
    found = positions(np.array([0.0, 1.0, 5.0, 9.0]), np.array([0.5, 3.0, -1e300, 1e300, np.nan]))
    np.testing.assert_allclose(found, [1 / 6, 0.5, 0, 1, 0.5])
    assert positions(np.array([7.0]), np.array([7.0, np.nan, 8.0])).tolist() == [0.5] * 3
    assert positions(np.array([]), np.array([7.0, np.nan])).tolist() == [0.5] * 2


@pytest.mark.parametrize(
    "knots", [[], [7.0], [0.0, 1.0, 5.0, 9.0], [-1e300, -2.5, 0.1, 0.2, 1e300], [1, 1 + 2**-52, 2.0]]
)
def test_a_number_alone_has_the_place_that_it_has_among_others(knots: list[float]) -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([knots, rng.normal(size=200), rng.normal(size=50) * 1e300, [np.nan, 0.15, 1.0, 8.999]])
    field = NumericField(column="x", type="float8", knots=(np.array(knots, np.float64),))
    encoder = Encoder((field,), (1,), LabelTarget("y", "text", ("a", "b")))
    together = TABLE.encode(encoder, [values], None)
    alone = np.concatenate([TABLE.encode(encoder, [values[k : k + 1]], None) for k in range(len(values))])
    assert alone.tobytes() == together.tobytes()


def test_every_category_of_the_table_view_is_below_its_cardinality() -> None:
    moments = np.array(["2019-01-31T00:30", "2020-12-31T23:00", "2021-02-07T12:00"], "datetime64[s]").astype(float)
    field = replace(TIME, calendar=PARTS)
    encoder = encoder_of(field, TEXT)
    rows = [np.append(moments, np.nan), np.array([0, 1, 2, -1], np.int32)]
    encoded = ROW_FORMS["table"].encode(encoder, rows, None)
    for k, column in enumerate(ROW_FORMS["table"].layout(encoder)):
        if column.kind == "category":
            assert set(encoded[:, k]) <= set(range(column.cardinality))


@pytest.mark.parametrize("inputs", [(IMAGE,), (VECTOR,), (replace(NUMBER, knots=()), TEXT)])
def test_one_array_or_an_encoder_without_knots_has_no_table_view(inputs: tuple[Field, ...]) -> None:
    assert row_form_of("table", encoder_of(*inputs)).name == "standard"
    assert row_form_of("table", encoder_of(*MIXED)).name == "table"


WORDS = Tokenizer("words")
RED, BLUE, GREEN = (WORDS.hashes(word)[0] for word in ("red", "blue", "green"))
PROSE = TextField(
    column="p",
    type="text",
    analyzer="words",
    width=3,
    missing=(0,),
    tokens=np.array([RED, BLUE], np.int32),
    weights=np.array([3.0, 4.0], np.float32),
)
MANY_NAMES = tuple(f"name {k:02d}" for k in range(MANY + 6))
NAMES = CategoricalField(column="m", type="text", missing=(0,), categories=MANY_NAMES)
READ = [WORDS.rows(["blue red green", None, "green"], 3), np.array([MANY + 5, -1, 0], np.int32)]


@pytest.mark.parametrize("name", ROW_FORMS)
def test_texts_and_long_dictionaries_are_in_every_view(name: str) -> None:
    encoder = encoder_of(PROSE, NAMES)
    view = row_form_of(name, encoder)
    assert view.name == name
    task, encoded = task_in(view, encoder), view.encode(encoder, READ, None)
    assert encoded.shape == (3, *task.input_shape)
    assert np.isfinite(encoded).all() or name in ("tree", "combined")


def test_the_standard_view_tells_the_commonest_64_categories_apart_however_long_the_dictionary() -> None:
    codes = np.array([0, MANY - 1, MANY, MANY + 5, MANY + 6, -1], np.int32)
    short = replace(NAMES, categories=MANY_NAMES[:MANY])
    expected = encode(encoder_of(short), [np.where(codes > MANY, MANY, codes)])
    np.testing.assert_array_equal(encode(encoder_of(NAMES), [codes]), expected)
    assert encoded_shape([NAMES]) == (MANY + 2,)


def test_networks_see_ids_of_tokens_that_training_knew() -> None:
    encoder = encoder_of(PROSE)
    assert ROW_FORMS["table"].encode(encoder, READ[:1], None).tolist() == [
        [1, 0, -1, 0],
        [-1, -1, -1, 1],
        [-1, -1, -1, 0],
    ]
    tokens, flag = [FormColumn("token", "p", str(k), 2) for k in range(3)], FormColumn("flag", "p")
    assert ROW_FORMS["table"].layout(encoder) == (*tokens, flag)


def test_trees_see_how_many_tokens_and_which_of_the_commonest() -> None:
    found = ROW_FORMS["tree"].encode(encoder_of(PROSE), READ[:1], None)
    np.testing.assert_array_equal(found, [[3, 1, 1], [np.nan, 0, 0], [1, 0, 0]])


def test_trees_see_mean_targets_out_of_fold() -> None:
    targets = TargetStatistics.empty(len(MANY_NAMES), 1)
    targets.add(*targets.look(READ[1], np.array([[1.0], [2.0], [3.0]]), np.array([0, 1, 2])))
    encoder, codes = encoder_of(replace(NAMES, targets=targets)), READ[1]
    for folds in (None, np.array([0, 1, 2])):
        found = ROW_FORMS["tree"].encode(encoder, [codes], folds)
        np.testing.assert_array_equal(found[:, 1:], targets.encode(codes, folds))
    assert [column.part for column in ROW_FORMS["tree"].layout(encoder)] == ["", "target 0"]


def test_linear_models_get_a_sparse_matrix_of_numbers_codes_and_weighted_tokens() -> None:
    encoder = encoder_of(NUMBER, NAMES, PROSE)
    rows = ROW_FORMS["sparse"].encode(encoder, [np.array([5.0, np.nan, 1.0]), READ[1], READ[0]], None)
    made = SparseRows(ROW_FORMS["sparse"].layout(encoder))
    n_names = len(MANY_NAMES) + 2
    expected = np.zeros((3, 2 + n_names + 2 + 1))
    expected[:, 0] = [2, 0, 0]  # standardised
    expected[1, 1] = 1  # it was missing
    expected[[0, 1, 2], [2 + MANY + 5, 2 + n_names - 1, 2]] = 1
    expected[0, 2 + n_names : 2 + n_names + 2] = [3 / 5, 4 / 5]  # red and blue, of unit length
    expected[1, -1] = 1
    assert made.n_features == expected.shape[1]
    np.testing.assert_allclose(made(rows).toarray(), expected, rtol=1e-6)


def test_a_table_without_texts_and_long_dictionaries_stays_as_it_was_for_linear_models() -> None:
    assert row_form_of("sparse", encoder_of(*MIXED)).name == "standard"
    assert row_form_of("sparse", encoder_of(NUMBER, NAMES)).name == "sparse"


def test_an_outlier_counts_as_the_nearest_end_of_what_training_saw() -> None:
    encoder = encoder_of(NUMBER, VECTOR)
    outliers = [np.array([1e300, -1e300]), np.array([[1e30, 0], [-1e30, 9]], np.float32)]
    np.testing.assert_array_equal(encode(encoder, outliers), np.float32([[4, 0, 4, 0], [-0.5, 0, 0, 4]]))


def test_a_column_that_was_always_missing_says_nothing_later() -> None:
    field = NumericField(column="n", type="float8", missing=(0,), knots=(np.array([]),))
    assert encode(encoder_of(field), [np.array([1e300, np.nan])]).tolist() == [[0, 0], [0, 1]]


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
    assert {each.view for each in ARCHITECTURES.values()} <= set(ROW_FORMS)


PLAIN = [
    NumericField(
        column=f"p{k}", type="float8", mean=np.array([k]), scale=np.array([1.5]), knots=(np.arange(0.0, 5 + k),)
    )
    for k in range(3)
]


@pytest.mark.parametrize("name", ["tree", "table", "standard"])
def test_a_row_alone_is_encoded_to_the_bytes_that_it_has_among_others(name: str) -> None:
    encoder = encoder_of(PLAIN[0], PLAIN[1], NUMBER, TIME, PLAIN[2])
    rng = np.random.default_rng(3)
    rows = [rng.uniform(-1, 9, 50) for _ in encoder.inputs]
    for values in rows:
        values[rng.integers(50)] = np.nan
    view = ROW_FORMS[name]
    together = view.encode(encoder, rows, None)
    for k in range(50):
        alone = view.encode(encoder, [values[k : k + 1] for values in rows], None)
        assert alone.tobytes() == together[k : k + 1].tobytes()
        numbers = view.encode(encoder, RowNumbers([float(values[k]) for values in rows]), None)
        assert numbers.tobytes() == alone.tobytes()
