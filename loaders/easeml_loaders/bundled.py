"""The datasets that scikit-learn carries: small, offline, for first steps and tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from easeml_loaders.source import Chunk, Column, Source, chunks_of_arrays
from easeml_plpy.server.errors import InvalidArgument

DIABETES_NAMES = (
    "age", "sex", "body_mass_index", "blood_pressure", "total_cholesterol", "low_density_lipoproteins",
    "high_density_lipoproteins", "cholesterol_ratio", "log_triglycerides", "blood_sugar",
)  # fmt: skip
BUNDLED_NAMES = ("breast_cancer", "diabetes", "digits", "iris", "wine")


def bundled_source(name: str) -> Source:
    """Return the dataset of this name: its measurements, then `label` (diabetes: `progression`)."""
    import sklearn.datasets

    if name == "digits":
        data = sklearn.datasets.load_digits()
        columns = [Column("pixels", "smallint", (8, 8)), Column("label", "integer")]
        return _source(name, columns, [data.images.astype(np.int16), data.target])
    if name == "diabetes":
        data = sklearn.datasets.load_diabetes(scaled=False)
        columns = [Column(column, "double precision") for column in (*DIABETES_NAMES, "progression")]
        return _source(name, columns, [*data.data.T, data.target])
    if name not in BUNDLED_NAMES:
        raise InvalidArgument(f"no dataset {name!r} in scikit-learn", hint=f"There are: {', '.join(BUNDLED_NAMES)}")
    return _labelled(name, getattr(sklearn.datasets, f"load_{name}")())


def _labelled(name: str, data: Any) -> Source:
    """Return numeric columns with their own names, and the class by its name."""
    columns = [Column(readable_name(feature), "double precision") for feature in data.feature_names]
    names = np.char.encode(np.asarray(data.target_names, dtype=np.str_), "utf-8")
    return _source(name, [*columns, Column("label", "text")], [*data.data.T, names[data.target]])


def readable_name(feature: str) -> str:
    """Turn 'sepal length (cm)' into a column name that needs no quotes: sepal_length_cm."""
    return re.sub(r"[^a-z0-9]+", "_", feature.lower()).strip("_")


def _source(name: str, columns: Sequence[Column], arrays: Sequence[NDArray[Any]]) -> Source:
    chunks: partial[Iterator[Chunk]] = partial(chunks_of_arrays, arrays)
    return Source(tuple(columns), len(arrays[0]), chunks, f"scikit-learn's bundled dataset {name}")
