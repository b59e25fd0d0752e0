"""The view `standard`: float32, standardised, imputed, flagged, one-hot; an array alone keeps its shape."""

from __future__ import annotations

from collections.abc import Sequence

from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.columns.encoding import encode
from easeml_plpy.columns.layout import Layout
from easeml_plpy.row_forms.contract import RowForm
from easeml_plpy.server.value_types import Array, Floats


def _shape(encoder: Encoder) -> tuple[int, ...]:
    return encoder.input_shape


def _encode(encoder: Encoder, fields: Sequence[Array], folds: Array | None) -> Floats:
    return encode(encoder, fields)


def _no_layout(encoder: Encoder) -> Layout:
    return ()  # every column is a number of about unit size, so there is nothing to tell apart


STANDARD = RowForm(
    name="standard",
    summary="float32: numbers standardised, missing ones imputed and flagged, categories one-hot",
    input_type="float32",
    shape=_shape,
    layout=_no_layout,
    encode=_encode,
)
