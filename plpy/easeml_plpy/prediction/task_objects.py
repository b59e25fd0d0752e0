"""Conversion of a client's JSON series and trees into numbers and links; an error names an object that does not fit.

A series is a list of its objects, or an object that links to the next. A tree is an object that links to others by the
names of its recursive fields. An object is {name: tensor, ...}; if it has only one tensor, a list may hold the tensor
alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from easeml_plpy.columns.numeric_fields import ObjectsField
from easeml_plpy.columns.object_rows import MOST_DEPTH, Objects
from easeml_plpy.server.errors import ShapeMismatch
from easeml_plpy.server.value_types import JSON, Array, shown

MOST_OBJECTS = 10_000
"""Limits of a series or a tree."""
GREATEST_REAL = float(np.finfo(np.float32).max)

Tensors: TypeAlias = Sequence[tuple[str, Sequence[int]]]


def objects_of(field: ObjectsField, given: JSON) -> Objects:
    """Return the objects of a series or tree. Raises ShapeMismatch."""
    if isinstance(given, Mapping):
        objects, links = _nested(field, given)
    elif isinstance(given, list) and not field.n_links:
        _refuse_links(field, given)
        objects, links = given, []
    else:
        what = "an object with its recursive fields" if field.n_links else "a list, or an object that leads to the next"
        raise ShapeMismatch(f"{field.column}: expected {what}, got {shown(given)}")
    if not 1 <= len(objects) <= MOST_OBJECTS:
        raise ShapeMismatch(f"{field.column}: expected 1 to {MOST_OBJECTS} objects, got {len(objects)}")
    columns = [
        _column(name, shape, [_tensor_of(field, name, entry) for entry in objects]) for name, shape in field.tensors
    ]
    table = np.array(links, np.int32).reshape(len(objects), field.n_links)
    return Objects(np.concatenate(columns, axis=1), table)


def series_of(field: ObjectsField, given: JSON, most_steps: int) -> Objects:
    """Return the steps of an output series. Raises ShapeMismatch."""
    series = objects_of(field, given)
    if len(series.numbers) > most_steps:
        raise ShapeMismatch(f"{field.column}: expected at most {most_steps} steps, got {len(series.numbers)}")
    return series


def series_of_numbers(field: ObjectsField, numbers: Array) -> Objects:
    """Return a series given as all its numbers, object after object. Raises ShapeMismatch."""
    if field.n_links:
        raise ShapeMismatch("input: expected a tree, got numbers", hint="Give it as jsonb: objects within objects.")
    n_objects, rest = divmod(numbers.size, field.n_numbers)
    if rest or not 1 <= n_objects <= MOST_OBJECTS:
        raise ShapeMismatch(
            f"input: expected {field.n_numbers} numbers for each of 1 to {MOST_OBJECTS} objects, got {numbers.size}"
        )
    rows = numbers.reshape(n_objects, -1).astype(np.float64)
    _check_finite("input", rows)
    return Objects(rows, np.zeros((n_objects, 0), np.int32))


def check_length(field: ObjectsField, row: Objects) -> Objects:
    """Refuse a row longer than any that was fed, which no network was built for. Raises ShapeMismatch."""
    if len(row.numbers) > field.shape[0]:
        raise ShapeMismatch(
            f"input: expected at most {field.shape[0]} objects, as in the longest example, got {len(row.numbers)}",
            hint="Feed examples of that length, or cut it.",
        )
    return row


def _refuse_links(field: ObjectsField, given: Sequence[JSON]) -> None:
    """Refuse objects of a list that link to others, because the list already gives the next object."""
    for entry in given:
        if isinstance(entry, Mapping) and entry.keys() & set(field.recursive):
            raise ShapeMismatch(f"{field.column}: expected a list of objects that lead to no other, got {shown(entry)}")


def _nested(field: ObjectsField, root: JSON) -> tuple[list[JSON], list[list[int]]]:
    """Return objects, each behind the one that links to it, and their links; works without recursion for any input."""
    objects: list[JSON] = []
    links: list[list[int]] = []
    waiting: list[tuple[JSON, int, int, int]] = [(root, -1, 0, 1)]
    while waiting:
        given, parent, place, depth = waiting.pop()
        if not isinstance(given, Mapping):
            raise ShapeMismatch(f"{field.column}: expected an object or null, got {shown(given)}")
        if field.n_links and depth > MOST_DEPTH:
            raise ShapeMismatch(f"{field.column}: expected a tree of at most {MOST_DEPTH} levels, got more")
        if len(objects) == MOST_OBJECTS:
            raise ShapeMismatch(f"{field.column}: expected at most {MOST_OBJECTS} objects, got more")
        objects.append(given)
        links.append([0] * field.n_links)
        if parent >= 0 and field.n_links:
            links[parent][place] = len(objects)
        children = enumerate(given.get(name) for name in field.recursive)
        further = [(child, len(objects) - 1, k, depth + 1) for k, child in children if child is not None]
        waiting += reversed(further)
    return objects, links


def _tensor_of(field: ObjectsField, name: str, given: JSON) -> JSON:
    if not isinstance(given, Mapping):
        if len(field.tensors) == 1:
            return given
        names = ", ".join(tensor for tensor, _ in field.tensors)
        raise ShapeMismatch(f"{field.column}: expected objects with {names}, got {shown(given)}")
    tensors = {tensor for tensor, _ in field.tensors}
    if not tensors <= given.keys() <= tensors | set(field.recursive):
        raise ShapeMismatch(
            f"{field.column}: expected an object with {', '.join((*sorted(tensors), *field.recursive))}, got"
            f" {shown(given)}"
        )
    return given[name]


def _column(name: str, shape: Sequence[int], values: Sequence[JSON]) -> Array:
    """Return a tensor of all objects, (n, numbers). Raises ShapeMismatch."""
    size, text = math.prod(shape), ",".join(map(str, shape))
    try:
        array = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ShapeMismatch(f"{name}: expected Tensor[{text}] of each object, {_unlike(shape, values)}") from error
    if array.shape[1:] not in (tuple(shape), (size,)) and not (size == 1 and array.ndim == 1):
        got = ",".join(map(str, array.shape[1:]))
        raise ShapeMismatch(f"{name}: expected Tensor[{text}] of each object, got Tensor[{got}]")
    rows = array.reshape(len(values), size)
    _check_finite(name, rows)
    return rows


def _unlike(shape: Sequence[int], values: Sequence[JSON]) -> str:
    """Name the first object whose tensor does not have the shape."""
    for place, value in enumerate(values, 1):
        try:
            array = np.array(value, np.float64)
        except (TypeError, ValueError, OverflowError):
            return f"got {shown(value)} in object {place}"
        if array.shape not in (tuple(shape), (math.prod(shape),)):
            return f"got {shown(value)} in object {place}"
    return "got something else"


def _check_finite(name: str, rows: Array) -> None:
    if not (np.abs(rows) <= GREATEST_REAL).all():
        raise ShapeMismatch(f"{name}: expected finite numbers that a real can hold, got another")
