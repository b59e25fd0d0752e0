"""A config as plain JSON: the architecture first, then every hyperparameter in the order it is declared."""

from __future__ import annotations

import json
from collections.abc import Sequence

from easeml_db.decisions.search_space.parsing import Subspace
from easeml_db.decisions.search_space.specs import RESERVED, Value

Config = dict[str, object]


def config_of(subspace: Subspace, values: Sequence[Value]) -> Config:
    """Name the values (one for each dimension); tuples become JSON lists."""
    config: Config = {RESERVED: subspace.architecture}
    for dimension, value in zip(subspace.dimensions, values, strict=True):
        config[dimension.name] = list(value) if isinstance(value, tuple) else value
    return config


def key_of(config: Config) -> str:
    """Return a text that is equal for equal configs only."""
    return json.dumps(config, sort_keys=True)
