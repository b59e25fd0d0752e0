"""The message that the steps of packing pass on: a JSON object that grows from step to step."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from easeml_plpy.columns.columns import Source, member_sql, read_sql
from easeml_plpy.columns.encoder import Field, Target, field_from_json, target_from_json
from easeml_plpy.packing.pack_request import PackRequest, request_of
from easeml_plpy.server.value_types import Array, Told

ARGUMENTS = (
    "dataset_id", "source", "inputs", "target", "n_partitions", "validation_fraction", "test_fraction", "seed", "task",
    "input_shape", "block_rows", "split_column", "time_column", "group_column",
)  # fmt: skip


def pack_request(message: Told) -> PackRequest:
    """Return the arguments of easeml.create_dataset. Rows on nodes are not named, and folds are for small tables."""
    arguments: dict[str, Any] = {name: message.get(name) for name in ARGUMENTS}
    return request_of(**arguments, relation=0, key_columns=(), n_folds=None)


def fields_of(message: Told) -> list[Field]:
    """Return the inputs as far as they are known."""
    return [field_from_json(entry) for entry in message["fields"]]


def target_of(message: Told) -> Target:
    """Return the target."""
    return target_from_json(message["target_json"])


def sources_of(message: Told) -> list[Source]:
    """Return the inputs, with SQL of their values in a row r of easeml_rows."""
    places = {name: k for k, name in enumerate(message["inputs"])}
    return [Source(field, _value(field, places)) for field in fields_of(message)]


def _value(field: Field, places: Mapping[str, int]) -> str:
    within = getattr(field, "within", "")
    value = f"r.i{places[within or field.column]}"
    return member_sql(field, value) if within else read_sql(field, value)


def needed_columns(request: PackRequest) -> list[str]:
    """Return the columns of the source that are read."""
    by = [] if request.split_by is None else [request.split_by.column]
    return list(dict.fromkeys([*request.inputs, request.target, *by]))


def fields_json(fields: Sequence[Field]) -> list[Any]:
    """Return inputs as a message holds them."""
    return [field.to_json() for field in fields]


def array_text(numbers: Array) -> str:
    """Return an array as a message holds it."""
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def array_from(text: str, kind: np.dtype[Any]) -> Array:
    """Undo `array_text`."""
    return np.frombuffer(base64.b64decode(text), kind)
