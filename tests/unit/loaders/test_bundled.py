"""scikit-learn's bundled datasets as sources."""

from __future__ import annotations

import re

import numpy as np
import pytest

from easeml_db.errors import InvalidArgument
from easeml_loaders import BUNDLED_NAMES, bundled_source

N_ROWS = {"breast_cancer": 569, "diabetes": 442, "digits": 1797, "iris": 150, "wine": 178}


@pytest.mark.parametrize("name", BUNDLED_NAMES)
def test_columns_have_names_that_need_no_quotes(name: str) -> None:
    made = bundled_source(name)
    assert made.n_rows == N_ROWS[name]
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", column.name) for column in made.columns)
    assert sum(len(chunk[0].data) for chunk in made.chunks()) == made.n_rows


def test_digits_keep_the_shape_of_the_image() -> None:
    made = bundled_source("digits")
    assert [column.declared_type for column in made.columns] == ["smallint[8][8]", "integer"]
    (chunk,) = made.chunks()
    assert np.asarray(chunk[0].data).shape == (1797, 8, 8)


def test_labels_are_names() -> None:
    (chunk,) = bundled_source("breast_cancer").chunks()
    assert set(np.asarray(chunk[-1].data).tolist()) == {b"malignant", b"benign"}


def test_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no dataset 'boston'"):
        bundled_source("boston")
