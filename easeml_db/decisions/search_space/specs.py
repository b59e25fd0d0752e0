"""What an architecture declares about a hyperparameter, and whether a value is legal for it.

Kinds: float, integer, categorical (one of `choices`), integers (a list such as hidden_units, each number within `low`
and `high`), names (a list of texts, such as columns), groups (a list of such lists). Booleans are not numbers; NaN and
infinities are refused; 64.0 is an integer, because JSON does not distinguish it from 64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from easeml_db.decisions.search_space.refusal import refusal, shown, unknown_name

Value = bool | int | float | str | None | tuple[int, ...] | tuple[str, ...] | tuple[tuple[str, ...], ...]
ValueKey = tuple[bool, Value]

KINDS = ("float", "integer", "categorical", "integers", "names", "groups")
LARGEST_INTEGER = 2**63 - 1
RESERVED = "architecture"
NAMES, GROUPS = 'a list of names, such as ["a", "b"]', 'a list of groups, such as [["a", "b"], ["c"]]'


@dataclass(frozen=True)
class HyperparameterSpec:
    """One hyperparameter of one architecture; `search` is its default search range, as users write one."""

    name: str
    kind: str
    default: Value
    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[Value, ...] | None = None
    search: object | None = None


def parse_specs(raw: object, path: str) -> dict[str, HyperparameterSpec]:
    """Read the list of specs of one architecture; returns them by name, in their order."""
    if isinstance(raw, str) or not isinstance(raw, Sequence):
        raise refusal(path, expected="a list of hyperparameters", got=shown(raw))
    specs: dict[str, HyperparameterSpec] = {}
    for number, item in enumerate(raw):
        spec = parse_spec(item, f"{path}[{number}]")
        if spec.name in specs:
            raise refusal(f"{path}[{number}].name", expected="each name once", got=shown(spec.name))
        specs[spec.name] = spec
    return specs


def parse_spec(raw: object, path: str) -> HyperparameterSpec:
    """Read one spec from JSON; keys that only describe (summary, unit) are left to the catalogue."""
    if not isinstance(raw, Mapping):
        raise refusal(path, expected="an object", got=shown(raw))
    name, kind = raw.get("name"), raw.get("kind")
    if not isinstance(name, str) or not name or name == RESERVED:
        raise refusal(f"{path}.name", expected=f"a name other than {RESERVED!r}", got=shown(name))
    if kind not in KINDS:
        raise unknown_name(f"{path}.kind", kind, KINDS, expected="a kind of hyperparameter")
    bare = HyperparameterSpec(name=name, kind=kind, default=None)
    bounded = replace(
        bare,
        low=_bound(raw.get("low"), f"{path}.low"),
        high=_bound(raw.get("high"), f"{path}.high"),
        log=raw.get("log") is True,
        choices=_choices(bare, raw.get("choices"), f"{path}.choices"),
        search=raw.get("search"),
    )
    return replace(bounded, default=legal_value(bounded, raw.get("default"), f"{path}.default"))


def legal_value(spec: HyperparameterSpec, raw: object, path: str) -> Value:
    """Return a JSON value in the type of the hyperparameter, or refuse it."""
    if spec.kind == "integers":
        return _legal_list(spec, raw, path)
    if spec.kind == "names":
        return _legal_names(raw, path)
    if spec.kind == "groups":
        return tuple(_legal_names(item, f"{path}[{i}]") for i, item in enumerate(_listed(raw, path, GROUPS)))
    if spec.kind == "categorical":
        return _legal_choice(spec, raw, path)
    value = _number(spec.kind, raw, path)
    _check_bounds(spec, value, path)
    return value if spec.choices is None else _legal_choice(spec, value, path)


def is_same(one: Value, other: Value) -> bool:
    """Compare by an equality that distinguishes true from 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def value_key(value: Value) -> ValueKey:
    """Return a key that is equal for two values if and only if they are the same."""
    return isinstance(value, bool), value


def _legal_list(spec: HyperparameterSpec, raw: object, path: str) -> Value:
    if not isinstance(raw, (list, tuple)):
        raise refusal(path, expected="a list of whole numbers, such as [64, 32]", got=shown(raw))
    numbers = []
    for position, item in enumerate(raw):
        number = _number("integer", item, f"{path}[{position}]")
        _check_bounds(spec, number, f"{path}[{position}]")
        numbers.append(int(number))
    return tuple(numbers) if spec.choices is None else _legal_choice(spec, tuple(numbers), path)


def _legal_names(raw: object, path: str) -> tuple[str, ...]:
    names = []
    for position, item in enumerate(_listed(raw, path, NAMES)):
        if not isinstance(item, str) or not item:
            raise refusal(f"{path}[{position}]", expected="a name", got=shown(item))
        names.append(item)
    return tuple(names)


def _listed(raw: object, path: str, expected: str) -> Sequence[object]:
    if not isinstance(raw, (list, tuple)):
        raise refusal(path, expected=expected, got=shown(raw))
    return raw


def _legal_choice(spec: HyperparameterSpec, raw: object, path: str) -> Value:
    for choice in spec.choices or ():
        if isinstance(raw, (bool, int, float, str, tuple, type(None))) and is_same(choice, raw):
            return choice
    choices = [str(choice) for choice in spec.choices or ()]
    raise unknown_name(path, raw, choices, expected="one of " + ", ".join(shown(c) for c in spec.choices or ()))


def _choices(spec: HyperparameterSpec, raw: object, path: str) -> tuple[Value, ...] | None:
    """Read the legal choices of a spec: needed for a categorical one, possible for the others."""
    if raw is None and spec.kind != "categorical":
        return None
    if not isinstance(raw, list) or not raw:
        raise refusal(path, expected="a list of at least one choice", got=shown(raw))
    if spec.kind != "categorical":
        return tuple(legal_value(spec, item, f"{path}[{i}]") for i, item in enumerate(raw))
    for position, item in enumerate(raw):
        if not isinstance(item, (bool, int, float, str, type(None))):
            raise refusal(f"{path}[{position}]", expected="a string, number or boolean", got=shown(item))
    return tuple(raw)


def _number(kind: str, raw: object, path: str) -> int | float:
    expected = "a number" if kind == "float" else "a whole number"
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not _is_finite(raw):
        raise refusal(path, expected=expected, got=shown(raw))
    if kind == "float":
        return float(raw)
    if raw != int(raw) or abs(raw) > LARGEST_INTEGER:
        raise refusal(path, expected=f"{expected} of at most 64 bits", got=shown(raw))
    return int(raw)


def _is_finite(number: int | float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number that no float holds
        return False


def _check_bounds(spec: HyperparameterSpec, value: int | float, path: str) -> None:
    if (spec.low is None or value >= spec.low) and (spec.high is None or value <= spec.high):
        return
    bounds = [f"at least {spec.low:g}"] if spec.low is not None else []
    bounds += [f"at most {spec.high:g}"] if spec.high is not None else []
    raise refusal(path, expected=f"a {spec.name} of {' and '.join(bounds)}", got=shown(value))


def _bound(raw: object, path: str) -> float | None:
    return None if raw is None else float(_number("float", raw, path))
