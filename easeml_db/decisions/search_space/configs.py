"""A config as plain JSON: the architecture first, then every hyperparameter in the order it is declared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from easeml_db.decisions.search_space.parsing import Subspace
from easeml_db.decisions.search_space.specs import RESERVED, Value

Config = dict[str, object]
_SORTED = json.JSONEncoder(sort_keys=True)  # json.dumps would make one for each config


def config_of(subspace: Subspace, values: Sequence[Value]) -> Config:
    """Name the values (one for each dimension); tuples become JSON lists."""
    config: Config = {RESERVED: subspace.architecture}
    for dimension, value in zip(subspace.dimensions, values, strict=True):
        config[dimension.name] = as_json(value) if isinstance(value, tuple) else value
    return config


def as_json(value: object) -> object:
    """Return a value as JSON has it: lists for tuples, however deep."""
    return [as_json(item) for item in value] if isinstance(value, tuple) else value


def as_value(raw: object) -> Value:
    """Return a value of a JSON config with lists replaced by tuples, at any depth."""
    return cast("Value", tuple(as_value(item) for item in raw) if isinstance(raw, list) else raw)


def key_of(config: Config) -> str:
    """Return a text that is equal for equal configs only."""
    return _SORTED.encode(config)
