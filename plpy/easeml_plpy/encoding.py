"""How columns become numbers: the encoder of a data set, for packing, training and prediction alike.

A *field* is one input column as a contiguous array with a row in front: numeric (n,) float64 with NaN for missing,
categorical (n,) int32 codes (-1 missing, len(categories) any other), tensor (n, *shape) in its stored type. Blocks
keep fields; `encode` turns fields into the float32 array that a trial sees. Training and prediction call the same
`encode` with the same stored statistics, so prediction applies exactly what training saw.

The encoder is JSON: {"inputs": [field, ...], "input_shape": [...], "target": {...}}, statistics from training rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InvalidData, ShapeMismatch

Encoder = Mapping[str, Any]
Fields = list[npt.NDArray[Any]]
Floats = npt.NDArray[np.float32]
_TIME = re.compile(r"(?P<moment>[\d-]+(?:[T ][\d:.]+)?)(?:Z|(?P<sign>[+-])(?P<offset>[\d:]+))?")

STORED_TYPES = frozenset({"u1", "i2", "i4", "f4", "f8"})


def field_type(field: Mapping[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the stored (little-endian) type of a field and the shape of one row of it."""
    if field["kind"] == "numeric":
        return np.dtype("<f8"), ()
    if field["kind"] == "categorical":
        return np.dtype("<i4"), ()
    if field["dtype"] not in STORED_TYPES:
        raise InvalidData(f"the encoder names an unknown type {field['dtype']!r}")
    return np.dtype(field["dtype"]).newbyteorder("<"), tuple(field["shape"])


def row_bytes(encoder: Encoder) -> int:
    """Bytes of one packed row of inputs."""
    return sum(
        dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in map(field_type, encoder["inputs"])
    )


def fields_to_bytes(fields: Fields) -> bytes:
    """Lay fields one after another."""
    return b"".join(np.ascontiguousarray(values).tobytes() for values in fields)


def fields_from_bytes(encoder: Encoder, payload: bytes, n_rows: int) -> Fields:
    """Undo `fields_to_bytes` without copying; the arrays are read-only views."""
    if len(payload) != n_rows * row_bytes(encoder):
        raise InvalidData(
            f"a block of {n_rows} rows holds {len(payload)} bytes, expected {n_rows * row_bytes(encoder)}",
            hint="The block is damaged: pack the data set again with easeml.refresh_dataset.",
        )
    fields, offset = [], 0
    for dtype, shape in map(field_type, encoder["inputs"]):
        count = n_rows * int(np.prod(shape, dtype=np.int64))
        fields.append(np.frombuffer(payload, dtype, count, offset).reshape(n_rows, *shape))
        offset += count * dtype.itemsize
    return fields


def encode(encoder: Encoder, fields: Fields) -> Floats:
    """Turn fields of n rows into float32 (n, *input_shape): standardised, imputed, flagged, one-hot."""
    parts = [_encode_field(field, values) for field, values in zip(encoder["inputs"], fields, strict=True)]
    if len(parts) == 1:
        return parts[0].reshape(len(parts[0]), *encoder["input_shape"])
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _encode_field(field: Mapping[str, Any], values: npt.NDArray[Any]) -> Floats:
    if field["kind"] == "categorical":
        return _one_hot(field, values)
    mean, scale = np.asarray(field["mean"]), np.asarray(field["scale"])
    if field["kind"] == "tensor" and not field["missing"]:
        # What float32 cannot hold is centred first; the field decides, since prediction brings float64 for all.
        work = np.float64 if field["dtype"] in ("f8", "i4") else np.float32
        centred: npt.NDArray[Any] = values.astype(work)
        centred -= mean.astype(work)
        centred /= scale.astype(work)
        scaled = centred.astype(np.float32, copy=False)
        return np.nan_to_num(scaled, copy=False, nan=0.0) if values.dtype.kind == "f" else scaled
    standard = ((values - mean) / scale).reshape(len(values), -1)
    is_missing = np.isnan(standard)
    flags = is_missing[:, field["missing"]] if field["missing"] else is_missing[:, :0]
    return np.concatenate([np.where(is_missing, 0.0, standard), flags], axis=1).astype(np.float32)


def _one_hot(field: Mapping[str, Any], codes: npt.NDArray[Any]) -> Floats:
    n_categories = len(field["categories"])
    width = n_categories + 1 + bool(field["missing"])
    columns = np.where(codes < 0, width - 1, codes)
    hot = np.zeros((len(codes), width), np.float32)
    hot[np.arange(len(codes)), columns] = 1.0
    return hot


def encoded_shape(inputs: Sequence[Mapping[str, Any]]) -> list[int]:
    """Shape of one encoded example: that of the only tensor, else the width of all fields side by side."""
    if len(inputs) == 1 and inputs[0]["kind"] == "tensor" and not inputs[0]["missing"]:
        return list(inputs[0]["shape"])
    return [sum(map(_width, inputs))]


def _width(field: Mapping[str, Any]) -> int:
    if field["kind"] == "categorical":
        return len(field["categories"]) + 1 + bool(field["missing"])
    return int(np.prod(field_type(field)[1], dtype=np.int64)) + len(field["missing"])


class Moments:
    """Streaming mean, deviation and missing positions of a field (Chan, Golub and LeVeque 1979), in float64."""

    def __init__(self, is_elementwise: bool) -> None:
        self.is_elementwise = is_elementwise
        self.count: npt.NDArray[Any] | float = 0.0
        self.mean: npt.NDArray[Any] | float = 0.0
        self.squares: npt.NDArray[Any] | float = 0.0
        self.missing: npt.NDArray[np.bool_] | None = None

    def add(self, values: npt.NDArray[Any]) -> None:
        """Take in (n, ...) values; NaN counts as missing."""
        rows = values.reshape(len(values), -1) if self.is_elementwise else values.reshape(-1, 1)
        is_missing = np.isnan(rows) if rows.dtype.kind == "f" else None
        if is_missing is None or not is_missing.any():
            count: Any = float(len(rows))
            mean = rows.mean(axis=0, dtype=np.float64)
            squares = rows.var(axis=0, dtype=np.float64) * count
            seen = np.zeros(rows.shape[1], bool)
        else:
            count = (~is_missing).sum(axis=0).astype(np.float64)
            mean = np.where(is_missing, 0.0, rows).sum(axis=0, dtype=np.float64) / np.maximum(count, 1)
            squares = np.where(is_missing, 0.0, (rows - mean) ** 2).sum(axis=0, dtype=np.float64)
            seen = is_missing.any(axis=0)
        total = np.maximum(self.count + count, 1.0)
        shift = mean - self.mean
        self.squares = self.squares + squares + shift**2 * self.count * count / total
        self.mean = self.mean + shift * count / total
        self.count = self.count + count
        self.missing = seen if self.missing is None else self.missing | seen

    def statistics(self) -> dict[str, Any]:
        """Return mean and scale (1 where a feature is constant) and the positions that had missing values."""
        scale = np.sqrt(np.asarray(self.squares) / np.maximum(self.count, 1.0))
        scale = np.where(scale > 1e-12 * np.maximum(1.0, np.abs(self.mean)), scale, 1.0)
        missing = [] if self.missing is None else np.flatnonzero(self.missing).tolist()
        return {"mean": np.asarray(self.mean).tolist(), "scale": scale.tolist(), "missing": missing}


def fields_from_values(encoder: Encoder, row: Mapping[str, Any]) -> Fields:
    """Make fields of one row given as a mapping from column to value (None: missing), as in to_jsonb(row)."""
    fields: Fields = []
    for field in encoder["inputs"]:
        if field["column"] not in row:
            raise ShapeMismatch(
                f"the row lacks the input {field['column']!r}",
                detail=f"Inputs: {', '.join(f['column'] for f in encoder['inputs'])}.",
            )
        fields.append(_field_from_value(field, row[field["column"]]))
    return fields


def _field_from_value(field: Mapping[str, Any], value: Any) -> npt.NDArray[Any]:
    dtype, shape = field_type(field)
    if field["kind"] == "categorical":
        return np.array([category_code(field, value)], dtype)
    array: npt.NDArray[Any]
    try:
        if isinstance(value, str) and field.get("type") == "bytea":
            array = np.frombuffer(bytes.fromhex(value.removeprefix("\\x")), np.uint8)
        elif isinstance(value, str) and field.get("is_time"):
            array = np.asarray(_seconds(value, has_zone=field["type"] == "timestamptz"))
        else:
            array = _as_stored(field, np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ShapeMismatch(f"input {field['column']!r}: expected a number, got {value!r}") from error
    expected = int(np.prod(shape, dtype=np.int64))
    if np.size(array) != expected:
        raise ShapeMismatch(
            f"input {field['column']!r}: expected {expected} number(s) of shape {list(shape)}, got {np.size(array)}"
        )
    return np.asarray(array, np.float64 if field["missing"] else None).reshape(1, *shape)


def _seconds(text: str, *, has_zone: bool) -> float:
    """Seconds since 1970 of a date or time as SQL and JSON write it; an offset counts where the type has one."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        raise ValueError(f"not a time: {text!r}")
    microseconds = int(np.datetime64(parts["moment"].replace(" ", "T")[:26], "us").astype(np.int64))
    if has_zone and parts["offset"]:
        offset = sum(int(part) * unit for part, unit in zip(parts["offset"].split(":"), (3600, 60, 1), strict=False))
        microseconds -= (-offset if parts["sign"] == "-" else offset) * 1_000_000
    return microseconds / 1e6


def _as_stored(field: Mapping[str, Any], numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers as the column's own type holds them: a real that JSON shows as 0.1 is 0.10000000149.

    Raises ShapeMismatch for an array with missing elements where training had none.
    """
    if field["kind"] == "tensor" and not field["missing"] and np.isnan(numbers).any():
        raise ShapeMismatch(f"input {field['column']!r} has missing elements, and no row that was trained on had any")
    return numbers.astype(np.float32).astype(np.float64) if field["type"] in ("float4", "_float4") else numbers


def category_code(field: Mapping[str, Any], value: Any) -> int:
    """Return the code of a category: its place, len(categories) for any other, -1 (or any other) for missing."""
    categories = field["categories"]
    if value is None:
        return -1 if field["missing"] else len(categories)
    text = {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    if field["type"] == "bpchar":
        text = text.rstrip(" ")  # char(n) is padded in JSON, and not where it is cast to text
    return categories.index(text) if text in categories else len(categories)


def fields_from_numbers(encoder: Encoder, numbers: npt.NDArray[Any]) -> Fields:
    """Make fields of one row given as numbers in the order of the inputs, tensors flattened."""
    names = [field["column"] for field in encoder["inputs"] if field["kind"] == "categorical"]
    if names:
        raise ShapeMismatch(
            f"input {names[0]!r} is categorical and cannot be given as a number",
            hint="Give the row as jsonb: easeml.predict(dataset, to_jsonb(row)).",
        )
    sizes = [int(np.prod(field_type(field)[1], dtype=np.int64)) for field in encoder["inputs"]]
    if numbers.size != sum(sizes):
        raise ShapeMismatch(f"expected {sum(sizes)} numbers, got {numbers.size}")
    parts = np.split(numbers.reshape(-1).astype(np.float64), np.cumsum(sizes)[:-1])
    return [
        _as_stored(field, part).reshape(1, *field_type(field)[1])
        for part, field in zip(parts, encoder["inputs"], strict=True)
    ]
