"""JSON search space -> SearchSpace; an error names the path of the wrong value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from easeml_db.decisions.search_space.domains import Choices, Domain, FloatRange, IntegerRange
from easeml_db.decisions.search_space.refusal import refusal, shown, unknown_name
from easeml_db.decisions.search_space.specs import (
    HyperparameterSpec,
    Value,
    ValueKey,
    legal_value,
    parse_specs,
    value_key,
)
from easeml_db.errors import InvalidArgument

ROOT = "search_space"
RANGE_KEYS = ("type", "low", "high", "log", "n_points")
LARGEST_N_POINTS = 10_000
RANGE_EXAMPLE = 'Write {"type": "float", "low": 0.001, "high": 0.1}, [0.001, 0.01] or 0.01.'

Specs = Mapping[str, Mapping[str, HyperparameterSpec]]


@dataclass(frozen=True)
class Dimension:
    """One hyperparameter with its domain; `path` is the place where the domain was written."""

    name: str
    domain: Domain
    path: str


@dataclass(frozen=True)
class Subspace:
    """All hyperparameters of one architecture, in the order in which it declares them."""

    architecture: str
    dimensions: tuple[Dimension, ...]

    @property
    def n_values(self) -> int | None:
        """The number of different configs, None when uncountable."""
        counts = [dimension.domain.n_values for dimension in self.dimensions]
        return None if None in counts else math.prod(count or 0 for count in counts)


@dataclass(frozen=True)
class SearchSpace:
    """One subspace for each architecture."""

    subspaces: tuple[Subspace, ...]


def parse_search_space(architectures: Mapping[str, object], search_space: object = None) -> SearchSpace:
    """Check a search space against the specs of the chosen architectures (lists of plain JSON objects).

    None or {}: every default search range. Otherwise a hyperparameter that is not mentioned keeps its default value.
    """
    return space_of(specs_of(architectures), search_space)


def specs_of(architectures: Mapping[str, object]) -> Specs:
    """Read the specs of the chosen architectures."""
    if not architectures:
        raise refusal("architectures", expected="at least one architecture", got="none")
    return {name: parse_specs(raw, f"architectures.{name}") for name, raw in architectures.items()}


def space_of(specs: Specs, search_space: object = None) -> SearchSpace:
    """Check a search space against specs that have been read."""
    if search_space is None or search_space == {}:
        return SearchSpace(tuple(_default_subspace(name, specs[name]) for name in specs))
    if not isinstance(search_space, Mapping):
        raise refusal(ROOT, expected="an object", got=shown(search_space), hint=_example(specs))
    _check_names(specs, search_space)
    return SearchSpace(tuple(_subspace(name, specs, search_space) for name in specs))


def parse_domain(spec: HyperparameterSpec, raw: object, path: str) -> Domain:
    """Read the domain of one hyperparameter: a fixed value, a list of choices or a range."""
    if isinstance(raw, Mapping):
        return _parse_range(spec, raw, path)
    if not isinstance(raw, list) or _is_fixed_list(spec, raw):
        return Choices((legal_value(spec, raw, path),))
    return _parse_choices(spec, raw, path)


def _default_subspace(architecture: str, specs: Mapping[str, HyperparameterSpec]) -> Subspace:
    root = f"architectures.{architecture}"
    return Subspace(
        architecture,
        tuple(
            Dimension(spec.name, _default_domain(spec, f"{root}.{spec.name}.search"), f"{root}.{spec.name}")
            for spec in specs.values()
        ),
    )


def _default_domain(spec: HyperparameterSpec, path: str) -> Domain:
    return Choices((spec.default,)) if spec.search is None else parse_domain(spec, spec.search, path)


def _subspace(architecture: str, specs: Specs, search_space: Mapping[str, object]) -> Subspace:
    ranges = search_space.get(architecture, {})
    dimensions = []
    for spec in specs[architecture].values():
        if isinstance(ranges, Mapping) and spec.name in ranges:
            path = f"{ROOT}.{architecture}.{spec.name}"
            dimensions.append(Dimension(spec.name, parse_domain(spec, ranges[spec.name], path), path))
        elif spec.name in search_space and spec.name not in specs:
            dimensions.append(_common_dimension(architecture, spec, search_space[spec.name]))
        else:
            path = f"architectures.{architecture}.{spec.name}"
            dimensions.append(Dimension(spec.name, Choices((spec.default,)), path))
    return Subspace(architecture, tuple(dimensions))


def _common_dimension(architecture: str, spec: HyperparameterSpec, raw: object) -> Dimension:
    path = f"{ROOT}.{spec.name}"
    try:
        return Dimension(spec.name, parse_domain(spec, raw, path), path)
    except InvalidArgument as error:
        error.detail = f"as architecture {architecture} declares {spec.name}"
        error.hint = error.hint or f"View easeml.architectures has the legal values of {spec.name}."
        raise


def _check_names(specs: Specs, search_space: Mapping[str, object]) -> None:
    """Refuse keys that are neither an architecture nor a hyperparameter of one."""
    hyperparameters = {name for of_one in specs.values() for name in of_one}
    for key, part in search_space.items():
        if key in specs:
            _check_nested_names(key, specs[key], part)
        elif key not in hyperparameters:
            raise unknown_name(
                f"{ROOT}.{key}",
                key,
                hyperparameters | set(specs),
                expected=f"a hyperparameter of {', '.join(specs)}, or one of these architectures",
            )


def _check_nested_names(architecture: str, specs: Mapping[str, HyperparameterSpec], part: object) -> None:
    path = f"{ROOT}.{architecture}"
    if not isinstance(part, Mapping):
        hint = f'Write {{"{architecture}": {{"{next(iter(specs), "name")}": ...}}}}.'
        raise refusal(path, expected="an object of its hyperparameters", got=shown(part), hint=hint)
    for key in part:
        if key not in specs:
            expected = f"a hyperparameter of {architecture}"
            raise unknown_name(f"{path}.{key}", key, specs, expected=expected)


def _is_fixed_list(spec: HyperparameterSpec, raw: list[object]) -> bool:
    """Return whether a list is one value: for a hyperparameter that is itself a list, [64, 32] is one and [[64], [32]]
    are two; of groups, which are lists of lists, it is so one level deeper.
    """
    if spec.kind == "groups":
        return bool(raw) and not any(isinstance(item, list) and any(isinstance(x, list) for x in item) for item in raw)
    return spec.kind in ("integers", "names") and bool(raw) and not any(isinstance(item, list) for item in raw)


def _parse_choices(spec: HyperparameterSpec, raw: list[object], path: str) -> Choices:
    if not raw:
        hint = "Name at least one choice, or leave the hyperparameter out to keep its default."
        raise refusal(path, expected="a list of choices", got="an empty list", hint=hint)
    options: dict[ValueKey, Value] = {}
    for position, item in enumerate(raw):
        value = legal_value(spec, item, f"{path}[{position}]")
        key = value_key(value)
        if key in options:
            raise refusal(f"{path}[{position}]", expected="different choices", got=f"{shown(item)} again")
        options[key] = value
    return Choices(tuple(options.values()))


def _parse_range(spec: HyperparameterSpec, raw: Mapping[str, object], path: str) -> FloatRange | IntegerRange:
    if spec.kind not in ("float", "integer") or spec.choices is not None:
        hint = "Write the choices as a list."
        raise refusal(path, expected=f"choices, since {spec.name} has no range", got=shown(raw), hint=hint)
    for key in raw:
        if key not in RANGE_KEYS:
            raise unknown_name(f"{path}.{key}", key, RANGE_KEYS, expected="a key of a range")
    if raw.get("type", spec.kind) != spec.kind:
        expected = f"{shown(spec.kind)}, which {spec.name} is"
        raise refusal(f"{path}.type", expected=expected, got=shown(raw["type"]))
    low, high = _end(spec, raw, "low", path), _end(spec, raw, "high", path)
    log, n_points = _log(spec, raw, path), _n_points(raw, path)
    _check_ends(low, high, log=log, path=path)
    if spec.kind == "integer":
        return IntegerRange(int(low), int(high), log, n_points)
    return FloatRange(low, high, log, n_points)


def _end(spec: HyperparameterSpec, raw: Mapping[str, object], key: str, path: str) -> int | float:
    if key not in raw:
        raise refusal(path, expected="a range with low and high", got=f"no {key}", hint=RANGE_EXAMPLE)
    value = legal_value(spec, raw[key], f"{path}.{key}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):  # legal_value saw to it
        raise refusal(f"{path}.{key}", expected="a number", got=shown(raw[key]))
    return value


def _log(spec: HyperparameterSpec, raw: Mapping[str, object], path: str) -> bool:
    """Return whether the scale is logarithmic; not said: as the architecture declares the hyperparameter."""
    log = raw.get("log", spec.log)
    if not isinstance(log, bool):
        raise refusal(f"{path}.log", expected="true or false", got=shown(log))
    return log


def _n_points(raw: Mapping[str, object], path: str) -> int | None:
    n_points = raw.get("n_points")
    if n_points is None:
        return None
    if isinstance(n_points, float) and n_points.is_integer():
        n_points = int(n_points)
    if isinstance(n_points, bool) or not isinstance(n_points, int) or not 2 <= n_points <= LARGEST_N_POINTS:
        expected = f"a whole number from 2 to {LARGEST_N_POINTS}"
        raise refusal(f"{path}.n_points", expected=expected, got=shown(n_points))
    return n_points


def _check_ends(low: int | float, high: int | float, *, log: bool, path: str) -> None:
    if low > high:
        got = f"{shown(low)} above high {shown(high)}"
        raise refusal(f"{path}.low", expected="low at most high", got=got, hint="Swap low and high.")
    if log and low <= 0:
        hint = 'Raise low, or say "log": false.'
        raise refusal(f"{path}.low", expected="above 0 on a log scale", got=shown(low), hint=hint)
    if not math.isfinite(float(high) - float(low)):
        raise refusal(f"{path}.high", expected="a range whose width is a number", got=shown(high))


def _example(specs: Specs) -> str:
    name = next((name for of_one in specs.values() for name in of_one), "learning_rate")
    return f'Write {{"{name}": ...}}, or leave search_space out to search the default ranges.'
