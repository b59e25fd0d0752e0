"""How columns become numbers, for packing, training and prediction alike.

A *field* is one input column as a contiguous array, one entry a row: numeric (n,) float64 with NaN for missing,
categorical (n,) int32 codes, tensor (n, *shape) in its stored type. Blocks keep fields. `encode` turns them into the
float32 array that a trial sees. Training and prediction call the same `encode` with the same stored statistics, so
prediction applies exactly what training saw. A number beyond the range of the training rows counts as its nearest end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .encoder import CategoricalField, Encoder, Field, NumericField, TensorField
from .errors import InvalidData
from .value_types import Array, Floats


def row_bytes(fields: Sequence[Field]) -> int:
    """Return the bytes of one packed row of inputs."""
    return sum(field.stored_type.itemsize * math.prod(field.shape) for field in fields)


def fields_to_bytes(fields: Sequence[Array]) -> bytes:
    """Lay fields one after another."""
    return b"".join(np.ascontiguousarray(values).tobytes() for values in fields)


def fields_from_bytes(encoder: Encoder, payload: bytes, n_rows: int) -> list[Array]:
    """Undo `fields_to_bytes` without copying; the arrays are read-only views. Raises InvalidData."""
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


def encode(encoder: Encoder, fields: Sequence[Array]) -> Floats:
    """Turn fields of n rows into float32 (n, *input_shape): standardised, imputed, flagged, one-hot."""
    parts = [_encode_field(field, values) for field, values in zip(encoder.inputs, fields, strict=True)]
    if len(parts) == 1:
        return parts[0].reshape(len(parts[0]), *encoder.input_shape)
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _encode_field(field: Field, values: Array) -> Floats:
    if isinstance(field, CategoricalField):
        return _one_hot(field, values)
    if isinstance(field, TensorField) and not field.missing:
        return _standardise_whole(field, values)
    return _standardise_with_flags(field, values)


def _standardise_whole(field: TensorField, values: Array) -> Floats:
    """Standardise an array in which training had no missing element; one that is missing here counts as the mean."""
    # What float32 cannot hold is centred first; the field decides, since prediction brings float64 for all.
    work = np.float64 if field.dtype in ("f8", "i4") else np.float32
    centred: Array = values.astype(work)
    if field.range is not None:
        np.clip(centred, *(bound.astype(work) for bound in field.range), out=centred)
    centred -= field.mean.astype(work)
    centred /= field.scale.astype(work)
    scaled: Floats = centred.astype(np.float32, copy=False)
    return np.nan_to_num(scaled, copy=False, nan=0.0) if values.dtype.kind == "f" else scaled


def _standardise_with_flags(field: NumericField | TensorField, values: Array) -> Floats:
    """Standardise, impute the mean, and add a flag for each position that was missing in training."""
    known = values if field.range is None else np.clip(values, *field.range)
    standard = ((known - field.mean) / field.scale).reshape(len(values), -1)
    is_missing = np.isnan(standard)
    flags = is_missing[:, list(field.missing)] if field.missing else is_missing[:, :0]
    return np.concatenate([np.where(is_missing, 0.0, standard), flags], axis=1).astype(np.float32)


def _one_hot(field: CategoricalField, codes: Array) -> Floats:
    width = _width(field)
    columns = np.where(codes < 0, width - 1, codes)
    hot = np.zeros((len(codes), width), np.float32)
    hot[np.arange(len(codes)), columns] = 1.0
    return hot


def encoded_shape(fields: Sequence[Field]) -> tuple[int, ...]:
    """Return the shape of one encoded row: that of the only tensor, else the width of all fields side by side."""
    only = fields[0]
    if len(fields) == 1 and isinstance(only, TensorField) and not only.missing:
        return only.shape
    return (sum(map(_width, fields)),)


def _width(field: Field) -> int:
    if isinstance(field, CategoricalField):
        return len(field.categories) + 1 + bool(field.missing)
    return math.prod(field.shape) + len(field.missing)
