"""The encoder: a dataset's columns with their statistics, parsed once from the JSON that stores it.

It is stored as {"inputs": [field, ...], "input_shape": [...], "target": {...}}. Statistics come from the training rows
only. Until they are known, while a dataset is being packed, a field has mean 0 and scale 1.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

from easeml_plpy.columns.clipping import RowBounds, row_bounds
from easeml_plpy.columns.coded_fields import CategoricalField, TextField, categorical_from_json, text_from_json
from easeml_plpy.columns.numeric_fields import (
    Entry,
    Moment,
    NumberField,
    NumericField,
    ObjectsField,
    TensorField,
    number_from_json,
)
from easeml_plpy.columns.series_target import SeriesTarget
from easeml_plpy.columns.task import TaskKind
from easeml_plpy.columns.tensor_target import TensorTarget
from easeml_plpy.server.value_types import JSON

__all__ = [
    "CategoricalField",
    "Encoder",
    "Field",
    "LabelTarget",
    "Moment",
    "NumberField",
    "NumberTarget",
    "NumericField",
    "ObjectsField",
    "SeriesTarget",
    "Target",
    "TensorField",
    "TensorTarget",
    "TextField",
    "field_from_json",
]


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
    """A number, trained on as (value - mean) / scale; `low` and `high` are the minimum and maximum over the training
    rows, None if they were not determined.
    """

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
        """The minimum and maximum on the scale of training."""
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
    def objects(self) -> ObjectsField | None:
        """The series or tree that is the input; None for other inputs."""
        return self.inputs[0] if isinstance(self.inputs[0], ObjectsField) else None

    @cached_property
    def row_bounds(self) -> RowBounds | None:
        """The range of each number of an input row; None if none is known."""
        return row_bounds(self.inputs)

    @property
    def array_range(self) -> tuple[float, float] | None:
        """The minimum and maximum of the training rows, standardised, if the only input is one array."""
        only = self.inputs[0]
        if len(self.inputs) > 1 or type(only) is not TensorField or not only.knots:
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
        fields: list[JSON] = [field.to_json() for field in self.inputs]
        folds: dict[str, JSON] = {"n_folds": self.n_folds} if self.n_folds else {}
        return {"inputs": fields, "input_shape": list(self.input_shape), "target": self.target.to_json(), **folds}


def field_from_json(entry: Entry) -> Field:
    """Parse a field; what a caller may not see (statistics, categories) may be absent. Raises InvalidData."""
    kind = entry["kind"]
    if kind == "categorical":
        return categorical_from_json(entry)
    if kind == "text":
        return text_from_json(entry)
    return number_from_json(entry)


def target_from_json(entry: Entry) -> Target:
    """Parse a target."""
    if entry["task"] == "classification":
        return LabelTarget(entry["column"], entry["type"], tuple(entry["labels"]))
    if "shape" in entry:
        return (SeriesTarget if entry.get("is_series") else TensorTarget).from_json(entry)
    bounds = entry.get("low"), entry.get("high")
    return NumberTarget(entry["column"], entry["type"], entry["mean"], entry["scale"], *bounds)
