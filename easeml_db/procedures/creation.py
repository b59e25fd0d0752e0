"""A procedure from the arguments of a run as they are stored: JSON texts and numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from easeml_db.procedures import PROCEDURES
from easeml_db.procedures.contract import Procedure
from easeml_db.procedures.options import ROOT
from easeml_db.search_space.parsing import SearchSpace, parse_search_space
from easeml_db.search_space.refusal import refusal, shown, unknown_name


def create_procedure(
    architectures_json: str,
    search_space_json: str | None,
    procedure: str,
    *,
    n_configs: int | None = None,
    max_epochs: int,
    seed: int = 0,
    options_json: str | None = None,
) -> Procedure:
    """Make the procedure of a run, or refuse what is wrong with the path at which it stands.

    `architectures_json` is an array of {"architecture": name, "hyperparameters": [spec, ...]}, whose order is
    kept, or an object name -> [spec, ...]. `options_json` is an object, null or nothing.
    """
    if procedure not in PROCEDURES:
        raise unknown_name("procedure", procedure, PROCEDURES, expected="a procedure")
    options = _options(options_json)
    space = read_space(architectures_json, search_space_json)
    factory = PROCEDURES[procedure]
    return factory(space, n_configs=n_configs, max_epochs=max_epochs, seed=seed, options=options)


def read_space(architectures_json: str, search_space_json: str | None) -> SearchSpace:
    """Return the checked search space of a run."""
    search_space = None if search_space_json is None else _read("search_space", search_space_json)
    return parse_search_space(_architectures(architectures_json), search_space)


def _options(text: str | None) -> Mapping[str, object]:
    raw = None if text is None else _read(ROOT, text)
    if raw is not None and not isinstance(raw, dict):
        raise refusal(ROOT, expected="an object", got=shown(raw), hint='Write {"eta": 3}, or leave it out.')
    return cast("Mapping[str, object]", raw or {})


def _architectures(text: str) -> Mapping[str, object]:
    """Return specs by architecture, from either form."""
    raw = _read("architectures", text)
    if isinstance(raw, dict):
        return raw
    if not isinstance(raw, list):
        raise refusal("architectures", expected="an array or an object", got=shown(raw))
    specs: dict[str, object] = {}
    for position, item in enumerate(raw):
        name = item.get("architecture") if isinstance(item, dict) else None
        if not isinstance(name, str) or name in specs:
            path = f"architectures[{position}].architecture"
            raise refusal(path, expected="a name, each once", got=shown(name))
        specs[name] = item.get("hyperparameters")
    return specs


def _read(argument: str, text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal(argument, expected="JSON", got=shown(text), hint=str(error)) from error
    return value
