"""Rows of one version of a dataset in the codes of another."""

from __future__ import annotations

import numpy as np
import pytest

from easeml_plpy.columns.encoder import CategoricalField, Encoder, LabelTarget, NumericField, TensorField, TextField
from easeml_plpy.evaluation.comparison import _in_classes_of, _recoded, _value
from easeml_plpy.server.errors import NotAllowed

LABELS = LabelTarget("y", "text", ("no", "yes"))


def encoder(*inputs, labels: LabelTarget = LABELS) -> Encoder:
    return Encoder(inputs, (1,), labels)


def colours(*categories: str, missing: tuple[int, ...] = ()) -> CategoricalField:
    return CategoricalField(column="colour", type="text", categories=categories, missing=missing)


def test_categories_keep_their_names_whatever_their_codes() -> None:
    new, old = encoder(colours("red", "green", "violet", missing=(0,))), encoder(colours("green", "red"))
    codes = [np.array([0, 1, 2, 3, -1], np.int32)]  # the fourth is none of them
    assert _recoded(new, old, codes)[0].tolist() == [1, 0, 2, 2, 2]
    with_missing = encoder(colours("green", "red", missing=(0,)))
    assert _recoded(new, with_missing, codes)[0].tolist() == [1, 0, 2, 2, -1]


def test_columns_are_found_by_name_and_numbers_stay() -> None:
    one, two = NumericField(column="a", type="float8"), NumericField(column="b", type="float8")
    found = _recoded(encoder(one, two), encoder(two), [np.array([1.0]), np.array([2.0])])
    assert [values.tolist() for values in found] == [[2.0]]


def test_texts_are_cut_or_filled_to_the_width_of_the_other_version() -> None:
    def text(width: int) -> TextField:
        return TextField(column="t", type="text", analyzer="words", width=width)

    rows = [np.array([[5, 6, -1]], np.int32)]
    assert _recoded(encoder(text(3)), encoder(text(4)), rows)[0].tolist() == [[5, 6, -1, -1]]
    assert _recoded(encoder(text(3)), encoder(text(1)), rows)[0].tolist() == [[5]]


@pytest.mark.parametrize(
    "other",
    [
        NumericField(column="b", type="float8"),
        colours("red"),
        TensorField(column="a", type="_float8", dtype="f8", shape=(2,)),
    ],
)
def test_columns_that_are_gone_or_have_become_something_else_are_refused(other) -> None:
    with pytest.raises(NotAllowed):
        _recoded(encoder(NumericField(column="a", type="float8")), encoder(other), [np.array([1.0])])


def test_probabilities_are_those_of_the_same_labels_and_none_for_classes_that_are_new() -> None:
    new = encoder(labels=LabelTarget("y", "text", ("maybe", "no", "yes")))
    outputs = _in_classes_of(new, encoder(), np.array([[0.9, 0.1], [0.2, 0.8]]))
    assert outputs.tolist() == [[0.0, 0.9, 0.1], [0.0, 0.2, 0.8]]
    assert _value("accuracy", new, np.array([1, 0]), outputs) == 0.5
