"""A row form: a way of laying out the fields of a dataset as one array, for the architectures that name it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.columns.layout import Layout
from easeml_plpy.columns.task import InputType
from easeml_plpy.server.value_types import Array


@dataclass(frozen=True)
class RowForm:
    """A way of laying out fields. Its constants come from the training rows alone, and the encoder holds them.

    `shape(encoder)` is that of one row, `layout(encoder)` says what its columns are, and `encode(encoder, fields,
    folds)` turns fields of n rows into (n, *shape) of `input_type`. Training and prediction call the same `encode`;
    `folds` (target_statistics.py) is None for rows that do not train.
    """

    name: str
    summary: str
    input_type: InputType
    shape: Callable[[Encoder], tuple[int, ...]]
    layout: Callable[[Encoder], Layout]
    encode: Callable[[Encoder, Sequence[Array], Array | None], Array]
