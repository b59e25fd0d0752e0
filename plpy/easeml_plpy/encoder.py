"""What a dataset's columns are and how they were measured: the encoder, parsed once from the JSON that stores it.

It is stored as {"inputs": [field, ...], "input_shape": [...], "target": {...}}. Statistics come from the training rows
only. Until they are known, while a dataset is being packed, a field has mean 0 and scale 1.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from .coded_fields import CategoricalField, Located, TextField, categorical_from_json, text_from_json
from .errors import InvalidData
from .task import TaskKind
from .tensor_target import TensorTarget
from .value_types import JSON

__all__ = [
    "CategoricalField",
    "Encoder",
    "Field",
    "LabelTarget",
    "NumberField",
    "NumberTarget",
    "NumericField",
    "Target",
    "TensorField",
    "TensorTarget",
    "TextField",
    "field_from_json",
]

Moment: TypeAlias = npt.NDArray[np.float64]
Range: TypeAlias = tuple[Moment, Moment] | None
"""The least and the greatest number, for all numbers or for each position; None: unknown, or bounded by the type."""

STORED_TYPES = frozenset({"u1", "i2", "i4", "f4", "f8"})
Entry: TypeAlias = Mapping[str, Any]
"""A field or a target as JSON. Only the parsers below look inside."""


def _range(knots: Sequence[Moment], mean: Moment) -> Range:
    """Return the ends of the knots. Where all rows were missing, the mean alone: no trial knows what a value means."""
    if not knots:
        return None
    low = [float(each[0]) if len(each) else middle for each, middle in zip(knots, mean.tolist(), strict=True)]
    high = [float(each[-1]) if len(each) else middle for each, middle in zip(knots, mean.tolist(), strict=True)]
    return np.array(low), np.array(high)


def _no_shift() -> Moment:
    return np.zeros(1)


def _no_scale() -> Moment:
    return np.ones(1)


@dataclass(frozen=True, eq=False, kw_only=True)
class NumericField(Located):
    """One number a row; NULL is stored as NaN. `missing`: (0,) where a training row had none. `type` is SQL's.

    `knots`: one ascending sequence, of which the ends are the range of the training rows (knots.py); empty where all
    rows are missing, and no sequence in datasets packed before there were any. `calendar`: the parts that vary.
    """

    is_time: bool = False
    calendar: tuple[str, ...] = ()
    missing: tuple[int, ...] = ()
    mean: Moment = field(default_factory=_no_shift)
    scale: Moment = field(default_factory=_no_scale)
    knots: tuple[Moment, ...] = ()

    stored_type: ClassVar[np.dtype[np.float64]] = np.dtype("<f8")
    shape: ClassVar[tuple[int, ...]] = ()

    @cached_property
    def range(self) -> Range:
        """Bounds of what training saw."""
        return _range(self.knots, self.mean)

    def to_json(self) -> dict[str, JSON]:
        """Return the field as it is stored."""
        times: dict[str, JSON] = {"is_time": True} if self.is_time else {}
        times |= {"calendar": list(self.calendar)} if self.calendar else {}
        return {**self.place_json(), "kind": "numeric", **times, **_moments_json(self)}


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorField(Located):
    """An array of one shape a row. `missing`: the flat positions at which a training row had no number.

    `dtype` names the stored element, `wire` the one that the server sends, in `wire_rank` dimensions; bytea has no
    wire form of its own. `knots`: a sequence for each position of a vector, one for all numbers of other arrays.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    wire: str = ""
    wire_rank: int = 0
    missing: tuple[int, ...] = ()
    mean: Moment = field(default_factory=_no_shift)
    scale: Moment = field(default_factory=_no_scale)
    knots: tuple[Moment, ...] = ()

    @property
    def stored_type(self) -> np.dtype[Any]:
        """The little-endian element type in blocks."""
        return np.dtype(self.dtype).newbyteorder("<")

    @cached_property
    def range(self) -> Range:
        """Bounds of what training saw, by position of a vector; 8-bit values need none."""
        return None if self.dtype == "u1" else _range(self.knots, self.mean)

    @property
    def is_array(self) -> bool:
        """Whether the field comes from an SQL array, not from bytea."""
        return self.type != "bytea"

    def to_json(self) -> dict[str, JSON]:
        """Return the field as it is stored."""
        base: dict[str, JSON] = {"column": self.column, "type": self.type, "kind": "tensor", "dtype": self.dtype}
        sent: dict[str, JSON] = {"wire": self.wire, "wire_rank": self.wire_rank} if self.is_array else {}
        return {**base, "shape": list(self.shape), **sent, **_moments_json(self)}


NumberField: TypeAlias = NumericField | TensorField
Field: TypeAlias = NumberField | CategoricalField | TextField


@dataclass(frozen=True)
class LabelTarget:
    """Classes by their place among the labels."""

    column: str
    type: str
    labels: tuple[str, ...]

    task: ClassVar[TaskKind] = "classification"

    @property
    def n_outputs(self) -> int:
        """The number of classes."""
        return len(self.labels)

    @cached_property
    def separator(self) -> str:
        """A text to put between labels: it is in none of them, nor made by the end of one and its own beginning."""
        whole = "".join(self.labels)
        return next(mark for mark in map("\x01{}\x02".format, itertools.count()) if mark not in whole)

    def to_json(self) -> dict[str, JSON]:
        """Return the target as it is stored."""
        base: dict[str, JSON] = {"column": self.column, "type": self.type, "task": self.task}
        return {**base, "labels": list(self.labels)}


@dataclass(frozen=True)
class NumberTarget:
    """A number, trained on as (value - mean) / scale; `low` and `high` are the least and the greatest one of the
    training rows, None where nobody looked for them."""

    column: str
    type: str
    mean: float = 0.0
    scale: float = 1.0
    low: float | None = None
    high: float | None = None

    task: ClassVar[TaskKind] = "regression"
    n_outputs: ClassVar[int] = 1

    @property
    def range(self) -> tuple[float, float] | None:
        """The least and the greatest one as they are trained on."""
        if self.low is None or self.high is None:
            return None
        return (self.low - self.mean) / self.scale, (self.high - self.mean) / self.scale

    def to_json(self) -> dict[str, JSON]:
        """Return the target as it is stored."""
        base: dict[str, JSON] = {"column": self.column, "type": self.type, "task": self.task}
        bounds: dict[str, JSON] = {} if self.low is None else {"low": self.low, "high": self.high}
        return {**base, "mean": self.mean, "scale": self.scale, **bounds}


Target: TypeAlias = LabelTarget | NumberTarget | TensorTarget


@dataclass(frozen=True)
class Encoder:
    """How columns become numbers: the inputs in their order, the shape of a row that a trial sees, the target; and into
    how many folds its training rows are divided, 0 where other rows validate."""

    inputs: tuple[Field, ...]
    input_shape: tuple[int, ...]
    target: Target
    n_folds: int = 0

    @property
    def array_range(self) -> tuple[float, float] | None:
        """The least and the greatest number of the training rows, standardised, where one array is the only input."""
        only = self.inputs[0]
        if len(self.inputs) > 1 or not isinstance(only, TensorField) or not only.knots:
            return None
        mean, scale = float(only.mean[0]), float(only.scale[0])
        return (float(only.knots[0][0]) - mean) / scale, (float(only.knots[0][-1]) - mean) / scale

    @classmethod
    def from_json(cls, value: Entry) -> Encoder:
        """Parse what is stored. Raises InvalidData."""
        fields = tuple(field_from_json(entry) for entry in value["inputs"])
        target = target_from_json(value["target"])
        return cls(fields, tuple(value["input_shape"]), target, value.get("n_folds", 0))

    @classmethod
    def from_text(cls, text: str) -> Encoder:
        """Parse a jsonb value as PL/Python hands it over. Raises InvalidData."""
        return cls.from_json(json.loads(text))

    def to_json(self) -> dict[str, JSON]:
        """Return what is stored."""
        fields: list[JSON] = [each.to_json() for each in self.inputs]
        folds: dict[str, JSON] = {"n_folds": self.n_folds} if self.n_folds else {}
        return {"inputs": fields, "input_shape": list(self.input_shape), "target": self.target.to_json(), **folds}


def field_from_json(entry: Entry) -> Field:
    """Parse a field; what a caller may not see (statistics, categories) may be absent. Raises InvalidData."""
    kind, column, sql_type = entry["kind"], entry["column"], entry["type"]
    missing = tuple(entry["missing"])
    if kind == "categorical":
        return categorical_from_json(entry)
    if kind == "text":
        return text_from_json(entry)
    mean, scale = _moment(entry, "mean", _no_shift()), _moment(entry, "scale", _no_scale())
    knots = tuple(np.array(each, np.float64) for each in entry.get("knots", ()))
    if kind == "numeric":
        return NumericField(
            column=column,
            type=sql_type,
            within=entry.get("within", ""),
            is_time=entry.get("is_time", False),
            calendar=tuple(entry.get("calendar", ())),
            missing=missing,
            mean=mean,
            scale=scale,
            knots=knots,
        )
    if entry["dtype"] not in STORED_TYPES:
        raise InvalidData(f"the encoder names an unknown type {entry['dtype']!r}")
    return TensorField(
        column=column,
        type=sql_type,
        dtype=entry["dtype"],
        shape=tuple(entry["shape"]),
        wire=entry.get("wire", ""),
        wire_rank=entry.get("wire_rank", 0),
        missing=missing,
        mean=mean,
        scale=scale,
        knots=knots,
    )


def target_from_json(entry: Entry) -> Target:
    """Parse a target."""
    if entry["task"] == "classification":
        return LabelTarget(entry["column"], entry["type"], tuple(entry["labels"]))
    if "shape" in entry:
        return TensorTarget.from_json(entry)
    bounds = entry.get("low"), entry.get("high")
    return NumberTarget(entry["column"], entry["type"], entry["mean"], entry["scale"], *bounds)


def _moment(entry: Entry, key: str, default: Moment) -> Moment:
    return np.array(entry[key], np.float64) if key in entry else default


def _moments_json(field: NumericField | TensorField) -> dict[str, JSON]:
    knots: dict[str, JSON] = {"knots": [each.tolist() for each in field.knots]} if field.knots else {}
    return {"mean": field.mean.tolist(), "scale": field.scale.tolist(), "missing": list(field.missing), **knots}
