"""The row form `sparse`, for linear models: the content of a sparse matrix, stored densely.

float32 (n, columns). Numbers stand as in `standard`, standardised, imputed and flagged. A category is its code, a
missing one the last. A text is the ids of its tokens (-1 for none), each with its weight: term frequency times inverse
document frequency, of unit length. `SparseRows` (architectures/tables/sparse_rows.py) makes the matrix of a batch, so
batches are drawn from rows as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from easeml_plpy.columns.coded_fields import NULL_TEXT, CategoricalField, TextField
from easeml_plpy.columns.encoder import Encoder, Field
from easeml_plpy.columns.encoding import encode_field, encoded_width, token_weights
from easeml_plpy.columns.layout import FormColumn
from easeml_plpy.columns.target_statistics import MANY
from easeml_plpy.row_forms.columns import FieldColumns, column_view
from easeml_plpy.server.value_types import Array


def is_sparse(encoder: Encoder) -> bool:
    """Return whether a dataset has this row form: if it has texts, or more categories than `standard` distinguishes."""
    return any(
        isinstance(field, TextField) or (isinstance(field, CategoricalField) and len(field.categories) > MANY)
        for field in encoder.inputs
    )


def _columns(field: Field) -> Iterator[FormColumn]:
    name = field.column
    if isinstance(field, CategoricalField):
        yield FormColumn("category", name, cardinality=len(field.categories) + 1 + bool(field.missing))
    elif isinstance(field, TextField):
        yield from (FormColumn("token", name, str(k), len(field.tokens)) for k in range(field.width))
        yield from (FormColumn("weight", name, str(k)) for k in range(field.width))
        yield from (FormColumn("flag", name) for _ in field.missing)
    else:
        n_flags = len(field.missing)
        yield from (FormColumn("number", name, str(k)) for k in range(encoded_width(field) - n_flags))
        yield from (FormColumn("flag", name, str(k)) for k in field.missing)


def _width(field: Field) -> int:
    if isinstance(field, CategoricalField):
        return 1
    if isinstance(field, TextField):
        return 2 * field.width + len(field.missing)
    return encoded_width(field)


def _write(field: Field, values: Array, folds: Array | None, into: Array) -> None:
    if isinstance(field, CategoricalField):
        into[:, 0] = np.where(values < 0, len(field.categories) + 1, values)
    elif isinstance(field, TextField):
        into[:, : field.width] = field.known(values)
        into[:, field.width : 2 * field.width] = token_weights(field, values)
        if field.missing:
            into[:, -1] = values[:, 0] == NULL_TEXT
    else:
        into[:] = encode_field(field, values).reshape(len(values), -1)


SPARSE = column_view(
    "sparse",
    "float32 for linear models: standardised numbers, codes of categories, ids of tokens with their tf-idf weights",
    "float32",
    FieldColumns(_columns, _width, _write),
)
