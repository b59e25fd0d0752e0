"""Each input as one column of values: numbers as they are, the mean of an array, how many words a text has, codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from easeml_plpy.columns.coded_fields import NULL_TEXT, CategoricalField, TextField
from easeml_plpy.columns.encoder import Encoder, Field, LabelTarget, NumberTarget, NumericField, TensorField
from easeml_plpy.drift.bins import MISSING, UNKNOWN, Bins, CategoryBins, NumberBins
from easeml_plpy.server.value_types import Array

Compared: TypeAlias = Field
"""An input, or the target as if it were one."""


def kind_of(field: Compared) -> str:
    """Return what of a column is compared."""
    if isinstance(field, CategoricalField):
        return "category"
    if isinstance(field, TextField):
        return "words of a text"
    if isinstance(field, TensorField):
        return "mean of an array"
    return "time" if field.is_time else "number"


def target_field(encoder: Encoder) -> Compared | None:
    """Return the target as a field; None if the outputs are tensors."""
    target = encoder.target
    if isinstance(target, LabelTarget):
        return CategoricalField(column=target.column, type=target.type, missing=(0,), categories=target.labels)
    if isinstance(target, NumberTarget):
        return NumericField(column=target.column, type=target.type)
    return None


def compared_columns(encoder: Encoder, *, has_target: bool) -> list[Compared]:
    """Return the inputs, followed by the target if it is compared."""
    target = target_field(encoder) if has_target else None
    return [*encoder.inputs, *([target] if target is not None else [])]


def values_of(field: Compared, stored: Array) -> Array:
    """Return a value for each row of a field as blocks hold it: NaN for a missing number; codes of categories."""
    if isinstance(field, CategoricalField):
        return stored
    if isinstance(field, TextField):
        return np.where(stored[:, 0] == NULL_TEXT, np.nan, (stored >= 0).sum(axis=1))
    if not isinstance(field, TensorField):
        return stored.astype(np.float64)
    numbers = stored.reshape(len(stored), -1).astype(np.float64)
    is_known = np.isfinite(numbers)
    n_known = is_known.sum(axis=1)
    means = np.where(is_known, numbers, 0.0).sum(axis=1) / np.maximum(n_known, 1)
    return np.where(n_known, means, np.nan)


def codes_of(field: CategoricalField, texts: Sequence[str | None]) -> Array:
    """Return codes of new texts: which of the categories, an unknown one, or none."""
    codes = field.codes
    return np.array([MISSING if text is None else codes.get(text, UNKNOWN) for text in texts], np.int64)


def bins_of(field: Compared, values: Array) -> Bins:
    """Return the bins that training rows make."""
    return (
        CategoryBins.of(values, len(field.categories)) if isinstance(field, CategoricalField) else NumberBins.of(values)
    )
