"""The configs that a run starts with: a function from JSON to JSON, called in the server and from Python."""

from __future__ import annotations

import json
from collections.abc import Mapping

from easeml_db.procedures import PROCEDURES
from easeml_db.procedures.contract import Start
from easeml_db.procedures.grid import MAX_CONFIGS
from easeml_db.search_space.parsing import parse_search_space
from easeml_db.search_space.refusal import refusal, shown, unknown_name


def propose(
    architectures_json: str,
    search_space_json: str | None,
    procedure: str,
    n_configs: int | None,
    seed: int,
) -> str:
    """Return the first configs of a run as a JSON array of objects, in the order of their trials.

    `architectures_json` is an array of {"architecture": name, "hyperparameters": [spec, ...]}, whose order is
    kept, or an object name -> [spec, ...].
    """
    if procedure not in PROCEDURES:
        raise unknown_name("procedure", procedure, PROCEDURES, expected="a procedure")
    _check_n_configs(n_configs)
    search_space = None if search_space_json is None else _read("search_space", search_space_json)
    space = parse_search_space(_architectures(architectures_json), search_space)
    decisions = PROCEDURES[procedure](space, n_configs=n_configs, seed=seed).ask([])
    return json.dumps([decision.config for decision in decisions if isinstance(decision, Start)])


def _check_n_configs(n_configs: int | None) -> None:
    if n_configs is None:
        return
    if isinstance(n_configs, bool) or not isinstance(n_configs, int) or not 1 <= n_configs <= MAX_CONFIGS:
        expected = f"a whole number from 1 to {MAX_CONFIGS}"
        raise refusal("n_configs", expected=expected, got=shown(n_configs))


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
