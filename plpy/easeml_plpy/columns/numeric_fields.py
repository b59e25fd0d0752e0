"""Inputs that are numbers: one a row, an array of one shape, or a series or tree of objects.

Statistics come from the training rows only. Until they are known, while a dataset is being packed, a field has mean 0
and scale 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from easeml_plpy.columns.coded_fields import Located
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.value_types import JSON

Moment: TypeAlias = npt.NDArray[np.float64]
Range: TypeAlias = tuple[Moment, Moment] | None
"""The least and the greatest number, for all numbers or for each position; None: unknown, or bounded by the type."""

STORED_TYPES = frozenset({"u1", "i2", "i4", "f4", "f8"})
Entry: TypeAlias = Mapping[str, Any]
"""A field or a target as JSON. Only parsers look inside."""


def _range(knots: Sequence[Moment], mean: Moment) -> Range:
    """Return the ends of the knots. If all rows were missing, return the mean alone, because no trial has learnt what a
    value means.
    """
    if not knots:
        return None
    pairs = list(zip(knots, mean.tolist(), strict=True))
    low = [float(sequence[0]) if len(sequence) else middle for sequence, middle in pairs]
    return np.array(low), np.array([float(sequence[-1]) if len(sequence) else middle for sequence, middle in pairs])


def _no_shift() -> Moment:
    return np.zeros(1)


def _no_scale() -> Moment:
    return np.ones(1)


@dataclass(frozen=True, eq=False, kw_only=True)
class NumericField(Located):
    """One number a row; NULL is stored as NaN. `missing`: (0,) if a training row had none. `type` is the SQL type.

    `knots`: one ascending sequence, of which the ends are the range of the training rows (quantiles.py); empty if all
    rows are missing; no sequence in datasets packed before knots were introduced. `calendar`: the parts that vary.
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


@dataclass(frozen=True, eq=False, kw_only=True)
class ObjectsField(TensorField):
    """One series or tree per row, of objects that hold `tensors`, names with shapes, and link to others by the fields
    `recursive`: by one in a series, whose order gives the next object.

    `shape` is (objects of the longest row, n_numbers + 1 + n_links): the numbers, 1 if the object exists, and the
    places of the objects that it links to, from 1, 0 for none. Blocks keep no more objects than there are
    (object_rows.py). Mean, scale and knots are by number.
    """

    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    recursive: tuple[str, ...]

    @property
    def n_numbers(self) -> int:
        """The numbers of one object."""
        return sum(math.prod(shape) for _, shape in self.tensors)

    @property
    def n_links(self) -> int:
        """The links that are stored for each object; none in a series."""
        return len(self.recursive) if len(self.recursive) > 1 else 0

    def of_length(self, n_objects: int) -> ObjectsField:
        """Return the field for rows with at most a number of objects."""
        return replace(self, shape=(n_objects, self.n_numbers + 1 + self.n_links))

    @cached_property
    def range(self) -> Range:
        """Bounds of what training saw, by number."""
        return _range(self.knots, self.mean)

    @property
    def numbers(self) -> TensorField:
        """The numbers of one object, as an array of their own."""
        return TensorField(column=self.column, type=self.type, dtype=self.dtype, shape=(self.n_numbers,))

    def to_json(self) -> dict[str, JSON]:
        """Return the field as it is stored."""
        tensors: list[JSON] = [[name, list(shape)] for name, shape in self.tensors]
        return {**super().to_json(), "kind": "objects", "tensors": tensors, "recursive": list(self.recursive)}


NumberField: TypeAlias = NumericField | TensorField


def number_from_json(entry: Entry) -> NumberField:
    """Parse a field of numbers. Raises InvalidData."""
    common: dict[str, Any] = {
        "column": entry["column"],
        "type": entry["type"],
        "missing": tuple(entry["missing"]),
        "mean": _moment(entry, "mean", _no_shift()),
        "scale": _moment(entry, "scale", _no_scale()),
        "knots": tuple(np.array(sequence, np.float64) for sequence in entry.get("knots", ())),
    }
    if entry["kind"] == "numeric":
        calendar, is_time = tuple(entry.get("calendar", ())), entry.get("is_time", False)
        return NumericField(within=entry.get("within", ""), is_time=is_time, calendar=calendar, **common)
    if entry["dtype"] not in STORED_TYPES:
        raise InvalidData(f"the encoder names an unknown type {entry['dtype']!r}")
    common |= {"dtype": entry["dtype"], "shape": tuple(entry["shape"])}
    common |= {"wire": entry.get("wire", ""), "wire_rank": entry.get("wire_rank", 0)}
    if entry["kind"] == "objects":
        tensors = tuple((name, tuple(shape)) for name, shape in entry["tensors"])
        return ObjectsField(tensors=tensors, recursive=tuple(entry["recursive"]), **common)
    return TensorField(**common)


def _moment(entry: Entry, key: str, default: Moment) -> Moment:
    return np.array(entry[key], np.float64) if key in entry else default


def _moments_json(field: NumericField | TensorField) -> dict[str, JSON]:
    knots: dict[str, JSON] = {"knots": [sequence.tolist() for sequence in field.knots]} if field.knots else {}
    return {"mean": field.mean.tolist(), "scale": field.scale.tolist(), "missing": list(field.missing), **knots}
