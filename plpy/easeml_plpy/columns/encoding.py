"""How columns become numbers, for packing, training and prediction alike.

A *field* is one input column as a contiguous array, one entry a row: numeric (n,) float64 with NaN for missing,
categorical (n,) int32 codes, text (n, width) int32 hashes of tokens, tensor (n, *shape) in its stored type. Blocks keep
fields. `encode` turns them into the float32 array of row form `standard`. Training and prediction call the same
`encode` with the same stored statistics, so prediction encodes exactly as training did. A number beyond the range of
the training rows counts as its nearest end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from easeml_plpy.columns.coded_fields import NULL_TEXT, CategoricalField, TextField
from easeml_plpy.columns.encoder import (
    Encoder,
    Field,
    LabelTarget,
    NumericField,
    ObjectsField,
    Target,
    TensorField,
    TensorTarget,
)
from easeml_plpy.columns.object_rows import standardised, unpacked
from easeml_plpy.columns.one_row_math import numbers_of
from easeml_plpy.columns.target_statistics import MANY
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.value_types import Array, Floats

CACHED_NUMBERS = 1 << 15
N_FOLDED = 64
"""Columns of a free text in the row form `standard`, where tokens share them."""


def row_bytes(fields: Sequence[Field]) -> int:
    """Return the bytes of one packed row of inputs."""
    return sum(field.stored_type.itemsize * math.prod(field.shape) for field in fields)


def fields_to_bytes(fields: Sequence[Array]) -> bytes:
    """Lay fields one after another."""
    return b"".join(np.ascontiguousarray(values).tobytes() for values in fields)


def fields_from_bytes(encoder: Encoder, payload: bytes, n_rows: int) -> list[Array]:
    """Undo `fields_to_bytes` without copying; the arrays are read-only views. Raises InvalidData."""
    if encoder.objects is not None:
        return [unpacked(encoder.objects, payload, n_rows)]
    expected = n_rows * row_bytes(encoder.inputs)
    if len(payload) != expected:
        raise InvalidData(
            f"a block of {n_rows} rows holds {len(payload)} bytes, expected {expected}",
            hint="The block is damaged: pack the dataset again with easeml.refresh_dataset.",
        )
    fields: list[Array] = []
    offset = 0
    for field in encoder.inputs:
        count = n_rows * math.prod(field.shape)
        fields.append(np.frombuffer(payload, field.stored_type, count, offset).reshape(n_rows, *field.shape))
        offset += count * field.stored_type.itemsize
    return fields


def targets_from_bytes(target: Target, payload: bytes, n_rows: int) -> Array:
    """Return the stored targets of a block of rows: (n,), or (n, n_outputs) of tensors."""
    if isinstance(target, TensorTarget):
        return target.stored(payload, n_rows)
    return np.frombuffer(payload, "<i4" if isinstance(target, LabelTarget) else "<f8")


def encode(encoder: Encoder, fields: Sequence[Array]) -> Floats:
    """Turn fields of n rows into float32 (n, *input_shape): standardised, imputed, flagged, one-hot."""
    parts = []
    for run in _runs(encoder.inputs):
        part = fields[run.start : run.stop]
        parts.append(encode_field(run.field, part[0]) if isinstance(run, _Alone) else run.encode(part))
    if len(parts) == 1:
        return parts[0].reshape(len(parts[0]), *encoder.input_shape)
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


@dataclass(frozen=True)
class _Alone:
    """A field that is encoded by itself."""

    start: int
    field: Field

    @property
    def stop(self) -> int:
        """The place after it."""
        return self.start + 1


@dataclass(frozen=True)
class _Numbers:
    """Adjacent numbers, which are encoded at once: one by one, each would cost a row ten numpy calls.

    `columns` are those of the values, then of the flags, in the order of the encoded row.
    """

    start: int
    stop: int
    low: Array
    high: Array
    mean: Array
    scale: Array
    columns: Array

    @classmethod
    def of(cls, start: int, fields: Sequence[NumericField]) -> _Numbers:
        """Return the constants of fields that begin at that place."""
        low, high = zip(*((-np.inf, np.inf) if field.range is None else field.range for field in fields), strict=True)
        columns = [
            k + len(fields) * is_flag for k, field in enumerate(fields) for is_flag in range(1 + bool(field.missing))
        ]
        moments = (np.hstack([field.mean for field in fields]), np.hstack([field.scale for field in fields]))
        return cls(start, start + len(fields), np.hstack(low), np.hstack(high), *moments, np.array(columns))

    def encode(self, values: Sequence[Array]) -> Floats:
        """Standardise, impute the mean, and add a flag beside each number that was missing in training."""
        numbers = numbers_of(values)[None] if len(values[0]) == 1 else np.stack(values, axis=1)
        standard = (np.clip(numbers, self.low, self.high) - self.mean) / self.scale
        is_missing = np.isnan(standard)
        imputed = np.where(is_missing, 0.0, standard)
        if len(self.columns) > len(values):
            imputed = np.concatenate([imputed, is_missing], axis=1)[:, self.columns]
        return imputed.astype(np.float32)


@lru_cache(64)
def _runs(inputs: tuple[Field, ...]) -> tuple[_Alone | _Numbers, ...]:
    """Return the inputs, with adjacent numbers grouped."""
    runs: list[_Alone | _Numbers] = []
    start = 0
    for is_number, members in groupby(inputs, key=lambda field: isinstance(field, NumericField)):
        fields = list(members)
        numbers = [field for field in fields if isinstance(field, NumericField)]
        runs += (
            [_Numbers.of(start, numbers)] if is_number else [_Alone(start + k, field) for k, field in enumerate(fields)]
        )
        start += len(fields)
    return tuple(runs)


def encode_field(field: Field, values: Array) -> Floats:
    """Turn one field of n rows into float32 (n, ...)."""
    if isinstance(field, CategoricalField):
        return _one_hot(field, values)
    if isinstance(field, TextField):
        return _folded(field, values)
    if isinstance(field, ObjectsField):
        return standardised(field, values)
    if isinstance(field, TensorField) and not field.missing:
        return _standardise_whole(field, values)
    return _standardise_with_flags(field, values)


def _standardise_whole(field: TensorField, values: Array) -> Floats:
    """Standardise an array in which training had no missing element; one that is missing here counts as the mean.

    A few rows at a time, whose numbers stay in the processor's cache from one operation to the next.
    """
    # What float32 cannot hold is centred first; the field decides, since prediction brings float64 for all.
    work = np.float64 if field.dtype in ("f8", "i4") else np.float32
    bounds = [bound.astype(work) for bound in field.range or ()]
    mean, scale = field.mean.astype(work), field.scale.astype(work)
    whole = np.empty(values.shape, np.float32)
    n_rows = max(1, CACHED_NUMBERS // math.prod(field.shape))
    for start in range(0, len(values), n_rows):
        centred: Array = values[start : start + n_rows].astype(work)
        if bounds:
            np.clip(centred, *bounds, out=centred)
        centred -= mean
        np.divide(centred, scale, out=whole[start : start + n_rows], casting="same_kind")
    if values.dtype.kind == "f" and not np.isfinite(whole).all():
        np.nan_to_num(whole, copy=False, nan=0.0)
    return whole


def _standardise_with_flags(field: NumericField | TensorField, values: Array) -> Floats:
    """Standardise, impute the mean, and add a flag for each position that was missing in training."""
    clipped = values if field.range is None else np.clip(values, *field.range)
    standard = ((clipped - field.mean) / field.scale).reshape(len(values), -1)
    is_missing = np.isnan(standard)
    flags = is_missing[:, list(field.missing)] if field.missing else is_missing[:, :0]
    return np.concatenate([np.where(is_missing, 0.0, standard), flags], axis=1).astype(np.float32)


def _one_hot(field: CategoricalField, codes: Array) -> Floats:
    width = encoded_width(field)
    # Other row forms tell the categories beyond these apart.
    columns = np.where(codes < 0, width - 1, np.minimum(codes, min(len(field.categories), MANY)))
    hot = np.zeros((len(codes), width), np.float32)
    hot[np.arange(len(codes)), columns] = 1.0
    return hot


def _folded(field: TextField, hashes: Array) -> Floats:
    """Return the weights of tokens, folded into a few columns and of unit length, and a flag for NULL."""
    width = encoded_width(field)
    weights, columns = token_weights(field, hashes), np.where(hashes >= 0, hashes % N_FOLDED, 0)
    rows = np.repeat(np.arange(len(hashes)), field.width)
    summed = np.bincount(rows * width + columns.ravel(), weights.ravel(), len(hashes) * width)
    folded = summed.reshape(-1, width).astype(np.float32)
    if field.missing:
        folded[:, -1] = hashes[:, 0] == NULL_TEXT
    return folded


def token_weights(field: TextField, hashes: Array) -> Floats:
    """Return the weight of each token in its text (n, width), of unit length; 0 for a token that is not known."""
    weights = np.append(field.weights, np.float32(0))[field.known(hashes)]  # -1, not known, is the zero at the end
    lengths = np.sqrt((weights**2).sum(axis=1, keepdims=True))
    scaled: Floats = np.divide(weights, lengths, out=np.zeros_like(weights), where=lengths > 0)
    return scaled


def encoded_shape(fields: Sequence[Field]) -> tuple[int, ...]:
    """Return the shape of one encoded row: that of the only tensor, else the width of all fields side by side."""
    only = fields[0]
    if len(fields) == 1 and isinstance(only, TensorField) and not only.missing:
        return only.shape
    return (sum(map(encoded_width, fields)),)


def encoded_width(field: Field) -> int:
    """Return how many numbers a row of the field becomes."""
    if isinstance(field, CategoricalField):
        return min(len(field.categories), MANY) + 1 + bool(field.missing)
    if isinstance(field, TextField):
        return N_FOLDED + len(field.missing)
    return math.prod(field.shape) + len(field.missing)
