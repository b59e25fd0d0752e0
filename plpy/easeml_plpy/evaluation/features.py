"""The features of rows as people know them: an input, one element of an array, or a patch of an image; and rows mixed
from several others.

A row is mixed by an index matrix: its element (i, j) says from which row the i-th mixed row takes its feature j. So
libraries that permute the columns of a matrix of numbers permute inputs of any kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from easeml_plpy.columns.encoder import Encoder, Field, TensorField
from easeml_plpy.columns.layout import Layout
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.value_types import Array

MOST_ELEMENTS = 256
"""An array with more elements, such as a long series, is cut into stretches."""
MOST_STRETCHES, MOST_PATCHES_A_SIDE = 64, 7
MOST_CHANNELS = 5

Place = tuple[slice, ...]
"""Where a patch is in an array: a stretch of each dimension."""


class Feature(NamedTuple):
    """A feature: the column of its input and its place, and what of an array it is: one element, a patch, or all."""

    column: str
    field: int
    element: int | None
    patch: Place | None = None

    @property
    def name(self) -> str:
        """The feature as people name it; elements count from 1, as in SQL, and so do stretches: image[1:4][5:8]."""
        if self.patch is not None:
            return self.column + "".join(f"[{part.start + 1}:{part.stop}]" for part in self.patch)
        return self.column if self.element is None else f"{self.column}[{self.element + 1}]"


def features_of(encoder: Encoder) -> list[Feature]:
    """Return the features of a dataset in the order of its inputs. Raises NotAllowed."""
    if encoder.objects is not None:
        raise NotAllowed(
            "series and trees of unequal size have no features that rows could exchange",
            hint="easeml.evaluate and the functions beside it measure such trials.",
        )
    return [feature for place, field in enumerate(encoder.inputs) for feature in _features_of(field, place)]


def _features_of(field: Field, place: int) -> Iterator[Feature]:
    size = math.prod(field.shape) if isinstance(field, TensorField) else 1
    if size == 1:
        yield Feature(field.column, place, None)
    elif len(field.shape) == 1 and size <= MOST_ELEMENTS:
        yield from (Feature(field.column, place, k) for k in range(size))
    else:
        yield from (Feature(field.column, place, None, patch) for patch in patches_of(field.shape))


def patches_of(shape: Sequence[int]) -> list[Place]:
    """Return the patches of an array, equal in size except at its ends, with all channels of an image."""
    whole = _channels(shape)
    most = MOST_STRETCHES if len(shape) == 1 else MOST_PATCHES_A_SIDE
    steps = [size if axis == whole else -(-size // most) for axis, size in enumerate(shape)]
    stretches = [
        [slice(start, min(start + step, size)) for start in range(0, size, step)]
        for size, step in zip(shape, steps, strict=True)
    ]
    return list(itertools.product(*stretches))


def _channels(shape: Sequence[int]) -> int | None:
    """Return the dimension of an image's channels: the last if it is small and smaller than the first."""
    if len(shape) != 3:
        return None
    return 2 if shape[2] <= MOST_CHANNELS and shape[2] < shape[0] else 0


def feature_places(features: Sequence[Feature], layout: Layout) -> Array:
    """Return the place of the feature that each column of a view was made of."""
    places = {key: k for k, feature in enumerate(features) for key in _keys(feature, features)}
    column_keys = ((column.field, column.part) for column in layout)
    return np.array([places[key] if key in places else places[key[0], ""] for key in column_keys], int)


def _keys(feature: Feature, features: Sequence[Feature]) -> Iterator[tuple[str, str]]:
    """Yield the columns of a view that are made of a feature: by their input, and the place of their element there."""
    if feature.patch is None:
        yield feature.column, "" if feature.element is None else str(feature.element)
        return
    patches = [other.patch for other in features if other.field == feature.field and other.patch is not None]
    shape = [max(patch[axis].stop for patch in patches) for axis in range(len(feature.patch))]
    flat = np.arange(math.prod(shape)).reshape(shape)[feature.patch]
    yield from ((feature.column, str(k)) for k in flat.ravel().tolist())


def mixed(fields: Sequence[Array], features: Sequence[Feature], rows: Array) -> list[Array]:
    """Return the fields of mixed rows; `rows` is int (n, n_features)."""
    mixed_fields = []
    for place, values in enumerate(fields):
        members = [j for j, feature in enumerate(features) if feature.field == place]
        if features[members[0]].patch is not None:
            mixed_fields.append(_mixed_patches(values, [(features[j], rows[:, j]) for j in members]))
        elif len(members) == 1:
            mixed_fields.append(values[rows[:, members[0]]])
        else:
            mixed_fields.append(values[rows[:, members], np.arange(len(members))])
    return mixed_fields


def _mixed_patches(values: Array, parts: Sequence[tuple[Feature, Array]]) -> Array:
    """Return arrays, each of whose patches comes from the row that is named for it."""
    whole = np.empty((len(parts[0][1]), *values.shape[1:]), values.dtype)
    for feature, rows in parts:
        place = (slice(None), *(feature.patch or ()))
        whole[place] = values[place][rows]
    return whole
