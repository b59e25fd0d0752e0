"""The row form `combined`: the columns of all others side by side, for ensembles, whose members' row forms differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.row_forms.contract import RowForm
from easeml_plpy.row_forms.sparse import SPARSE, is_sparse
from easeml_plpy.row_forms.standard import STANDARD
from easeml_plpy.row_forms.table import TABLE, has_table
from easeml_plpy.row_forms.tree import TREE
from easeml_plpy.server.value_types import Array


class Part(NamedTuple):
    """The place of a row form in a combined row."""

    view: RowForm
    start: int
    stop: int


def parts_of(encoder: Encoder) -> list[Part]:
    """Return the row forms of a dataset; an array alone, such as an image, has one."""
    parts: list[Part] = []
    for view in _views(encoder):
        start = parts[-1].stop if parts else 0
        parts.append(Part(view, start, start + math.prod(view.shape(encoder))))
    return parts


def _views(encoder: Encoder) -> list[RowForm]:
    if len(STANDARD.shape(encoder)) > 1:
        return [STANDARD]
    there = ((TABLE, has_table(encoder)), (SPARSE, is_sparse(encoder)))
    return [STANDARD, TREE, *(view for view, is_there in there if is_there)]


def _encode(encoder: Encoder, fields: Sequence[Array], folds: Array | None) -> Array:
    encoded = [part.view.encode(encoder, fields, folds) for part in parts_of(encoder)]
    return np.concatenate([rows.reshape(len(rows), -1).astype(np.float64) for rows in encoded], axis=1)


COMBINED = RowForm(
    name="combined",
    summary="float64: the rows of the other views, side by side",
    input_type="float64",
    shape=lambda encoder: (parts_of(encoder)[-1].stop,),
    layout=lambda encoder: (),  # members know their own
    encode=_encode,
)
