"""The row form `standard`: float32, standardised, imputed, flagged, one-hot; an array alone keeps its shape."""

from __future__ import annotations

from easeml_plpy.columns.encoding import encode
from easeml_plpy.row_forms.contract import RowForm

STANDARD = RowForm(
    name="standard",
    summary="float32: numbers standardised, missing ones imputed and flagged, categories one-hot",
    input_type="float32",
    shape=lambda encoder: encoder.input_shape,
    layout=lambda encoder: (),  # every column is a number of about unit size, so there is nothing to tell apart
    encode=lambda encoder, fields, folds: encode(encoder, fields),
)
