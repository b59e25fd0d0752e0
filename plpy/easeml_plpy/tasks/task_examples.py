"""Conversion of a client's JSON examples into rows of a task's table; an error names an example that does not fit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from easeml_plpy.columns.encoder import SeriesTarget
from easeml_plpy.prediction.task_objects import objects_of, series_of
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import InvalidArgument, ShapeMismatch
from easeml_plpy.server.session import Session
from easeml_plpy.server.value_types import JSON, shown
from easeml_plpy.tasks.task_columns import array_text, columns_of_objects, objects_field, target_of

MOST_BYTES = 32 << 20


@entry_point(returns_failure=True)
def read_examples(session: Session, specification: str, classes: Sequence[str] | None, examples: str) -> str:
    """Return the rows of a JSON array of {"input": ..., "output": ...} as a JSON array: columns as SQL writes their
    values, or a `problem`. Raises InvalidArgument if it is not such an array.
    """
    if len(examples) > MOST_BYTES:
        raise InvalidArgument(
            f"examples: expected at most {MOST_BYTES} characters of json, got {len(examples)}",
            hint="Feed them in parts, or use COPY.",
        )
    try:
        given = json.loads(examples)
    except RecursionError as error:
        raise InvalidArgument("examples: json is nested too deep", hint="Give a series as a list.") from error
    rows = given if isinstance(given, list) else [given]
    spec = json.loads(specification)
    if spec.get("recursive"):
        spec["objects"] = objects_field(spec)
    target = target_of(spec, classes)
    if isinstance(target, SeriesTarget):
        spec["series"] = target.field
    return json.dumps([_row(spec, classes, row) for row in rows])


def _row(spec: Mapping[str, Any], classes: Sequence[str] | None, row: JSON) -> dict[str, JSON]:
    try:
        if not isinstance(row, Mapping) or not row.keys() <= {"input", "output"} or "input" not in row:
            raise ShapeMismatch('expected {"input": ..., "output": ...}, got ' + shown(row))
        return _columns(spec, row["input"]) | _output_column(spec, classes, row.get("output"))
    except ShapeMismatch as error:
        return {"problem": str(error)}


def _output_column(spec: Mapping[str, Any], classes: Sequence[str] | None, given: JSON) -> dict[str, JSON]:
    """Return the output of an example as SQL writes it. Raises ShapeMismatch."""
    if given is None:
        return {"output": None}
    if "series" in spec:
        entry = spec["output"]
        return columns_of_objects([entry], series_of(spec["series"], given, entry["most_objects"]))
    if spec.get("output") is not None:
        return {"output": _tensor(spec["output"], given)}
    return {"output": _output(classes, given)}


def _columns(spec: Mapping[str, Any], given: JSON) -> dict[str, JSON]:
    """Return the input columns of an example as SQL writes their values. Raises ShapeMismatch."""
    if "objects" in spec:
        return columns_of_objects(spec["inputs"], objects_of(spec["objects"], given))
    return {entry["column"]: _tensor(entry, value) for entry, value in _inputs(spec["inputs"], given)}


def _inputs(entries: Sequence[Mapping[str, Any]], given: JSON) -> list[tuple[Mapping[str, Any], JSON]]:
    """Return each input column with its value: a single one is given directly, several as an object by their names."""
    if len(entries) == 1 and not isinstance(given, Mapping):
        return [(entries[0], given)]
    names = [entry["name"] for entry in entries]
    if not isinstance(given, Mapping) or given.keys() != set(names):
        raise ShapeMismatch(f"input: expected an object with {', '.join(names)}, got {shown(given)}")
    return [(entry, given[entry["name"]]) for entry in entries]


def _tensor(entry: Mapping[str, Any], value: JSON) -> str:
    """Return a tensor as SQL writes a bytea or an array of real. Raises ShapeMismatch."""
    shape = tuple(entry["shape"])
    if isinstance(value, str):
        return _bytes_of_text(entry, value)
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ShapeMismatch(f"{entry['column']}: expected {entry['text']}, got {shown(value)}") from error
    if array.shape not in (shape, (math.prod(shape),)):
        raise ShapeMismatch(
            f"{entry['column']}: expected {entry['text']}, got Tensor[{','.join(map(str, array.shape))}]"
        )
    if entry["type"] == "bytea":
        return _bytes_of(entry, array)
    numbers = array.astype(np.float32).reshape(shape)
    if not np.isfinite(numbers).all():
        raise ShapeMismatch(f"{entry['column']}: expected finite numbers that a real can hold, got another")
    return array_text(numbers.tolist())


def _bytes_of_text(entry: Mapping[str, Any], value: str) -> str:
    if entry["type"] != "bytea":
        raise ShapeMismatch(f"{entry['column']}: expected numbers of {entry['text']}, got {shown(value)}")
    try:
        given = bytes.fromhex(value.removeprefix("\\x"))
    except ValueError as error:
        raise ShapeMismatch(f"{entry['column']}: expected hexadecimal bytes, got {shown(value)}") from error
    if len(given) != entry["n_values"]:
        raise ShapeMismatch(f"{entry['column']}: expected {entry['text']}, {entry['n_values']} bytes, got {len(given)}")
    return "\\x" + given.hex()


def _bytes_of(entry: Mapping[str, Any], array: Any) -> str:
    if not ((array >= 0) & (array <= 255) & (array == np.round(array))).all():
        raise ShapeMismatch(
            f"{entry['column']}: expected whole numbers from 0 to 255, got another",
            hint="Make the task with storage => 'numbers' for other values.",
        )
    pixels: bytes = array.astype(np.uint8).tobytes()
    return "\\x" + pixels.hex()


def _output(classes: Sequence[str] | None, value: JSON) -> JSON:
    """Return the class or the number: as given, or of the output tensor, whose largest number is the class."""
    if classes is None:
        number = value[0] if isinstance(value, list) and len(value) == 1 else value
        if isinstance(number, bool | list | Mapping) or not math.isfinite(_number(number)):
            raise ShapeMismatch(f"output: expected a finite number, got {shown(value)}")
        return _number(number)
    if isinstance(value, list):
        if len(value) != len(classes):
            raise ShapeMismatch(f"output: expected Tensor[{len(classes)}], got {len(value)} numbers")
        return classes[int(np.argmax([_number(score) for score in value]))]
    if str(value) not in classes:
        raise ShapeMismatch(f"output: expected one of {_some(classes)}, got {shown(value)}")
    return str(value)


def _number(value: JSON) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ShapeMismatch(f"output: expected a number, got {shown(value)}") from error


def _some(classes: Sequence[str]) -> str:
    shown = ", ".join(classes[:10])
    return shown if len(classes) <= 10 else f"{shown} and {len(classes) - 10} more"
