"""The columns of a task's table of examples as fields, and their values as SQL writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from easeml_plpy.columns.encoder import (
    Field,
    LabelTarget,
    NumberTarget,
    ObjectsField,
    SeriesTarget,
    Target,
    TensorField,
    TensorTarget,
)
from easeml_plpy.columns.object_rows import Objects
from easeml_plpy.server.value_types import JSON

Specification = Mapping[str, Any]


def fields_of(specification: Specification) -> list[Field]:
    """Return the inputs of a task before their values have been seen."""
    if specification.get("recursive"):
        return [objects_field(specification)]
    return [field_of(entry) for entry in specification["inputs"]]


def objects_field(specification: Specification) -> ObjectsField:
    """Return the input of a task of series or trees, for rows of one object; packing finds how long they are."""
    tensors = tuple((entry["name"], tuple(entry["shape"])) for entry in specification["inputs"] if is_of_objects(entry))
    field = ObjectsField(
        column="input",
        type="_float4",
        dtype="f4",
        tensors=tensors,
        recursive=tuple(specification["recursive"]),
    )
    return field.of_length(1)


def is_link(entry: Mapping[str, Any]) -> bool:
    """Return whether a column holds links of objects, not a tensor."""
    return entry.get("role") == "link"


def is_of_objects(entry: Mapping[str, Any]) -> bool:
    """Return whether a column holds a tensor of each object of a series or tree."""
    return entry.get("role") == "object"


def target_of(specification: Specification, classes: Sequence[str] | None) -> Target:
    """Return the target of a task before its values have been seen."""
    if classes is not None:
        return LabelTarget("output", "text", tuple(classes))
    if specification.get("output") is None:
        return NumberTarget("output", "float8")
    entry = specification["output"]
    if is_of_objects(entry):
        return SeriesTarget("output", "_float4", "f4", (1, entry["n_values"] + 1))
    field = field_of(entry)
    return TensorTarget("output", field.type, field.dtype, field.shape)


def field_of(entry: Mapping[str, Any]) -> TensorField:
    """Return a tensor of a task before its values have been seen."""
    shape = tuple(entry["shape"])
    if entry["type"] == "bytea":
        return TensorField(column=entry["column"], type="bytea", dtype="u1", shape=shape)
    return TensorField(column=entry["column"], type="_float4", dtype="f4", shape=shape, wire="f4", wire_rank=len(shape))


def columns_of_objects(entries: Sequence[Mapping[str, Any]], objects: Objects) -> dict[str, JSON]:
    """Return the columns of a series or tree as SQL writes their values."""
    sql_columns: dict[str, JSON] = {}
    start = 0
    for entry in entries:
        if is_of_objects(entry):
            stop = start + entry["n_values"]
            numbers = objects.numbers[:, start:stop].astype(np.float32).reshape(-1, *entry["shape"])
            sql_columns[entry["column"]] = array_text(numbers.tolist())
            start = stop
    columns = [entry["column"] for entry in entries if is_link(entry)]
    for column, places in zip(columns, objects.links.T.tolist(), strict=True):
        sql_columns[column] = array_text([place or None for place in places])
    return sql_columns


def array_text(values: Sequence[JSON]) -> str:
    """Return nested lists of numbers as SQL writes an array."""
    return json.dumps(values).replace("[", "{").replace("]", "}")
