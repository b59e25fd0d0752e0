"""The features of rows as people know them: an input, or one element of an array; and rows mixed of several others.

A row is mixed by an index matrix: its element (i, j) says from which row the i-th mixed row takes its feature j. So
libraries that permute the columns of a matrix of numbers permute inputs of any kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from easeml_plpy.encoder import Encoder, TensorField
from easeml_plpy.layout import Layout
from easeml_plpy.value_types import Array

MOST_ELEMENTS = 256
"""An array with more elements, such as an image, is one feature."""


class Feature(NamedTuple):
    """A feature: the column of its input and its place, and the place of its element there, None for all of it."""

    column: str
    field: int
    element: int | None

    @property
    def name(self) -> str:
        """The feature as people name it; elements count from 1, as in SQL."""
        return self.column if self.element is None else f"{self.column}[{self.element + 1}]"


def features_of(encoder: Encoder) -> list[Feature]:
    """Return the features of a dataset in the order of its inputs."""
    found = []
    for place, field in enumerate(encoder.inputs):
        size = math.prod(field.shape) if isinstance(field, TensorField) and len(field.shape) == 1 else 0
        if 1 < size <= MOST_ELEMENTS:
            found += [Feature(field.column, place, k) for k in range(size)]
        else:
            found.append(Feature(field.column, place, None))
    return found


def feature_places(features: Sequence[Feature], layout: Layout) -> Array:
    """Return the place of the feature that each column of a view was made of."""
    places = {(each.column, "" if each.element is None else str(each.element)): k for k, each in enumerate(features)}
    wanted = ((column.field, column.part) for column in layout)
    return np.array([places[key] if key in places else places[key[0], ""] for key in wanted], int)


def mixed(fields: Sequence[Array], features: Sequence[Feature], rows: Array) -> list[Array]:
    """Return the fields of mixed rows; `rows` is int (n, n_features)."""
    found = []
    for place, values in enumerate(fields):
        own = [j for j, feature in enumerate(features) if feature.field == place]
        if len(own) == 1:
            found.append(values[rows[:, own[0]]])
        else:
            found.append(values[rows[:, own], np.arange(len(own))])
    return found
