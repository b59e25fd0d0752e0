"""Series and trees of unequal size: packed one after another in blocks, and padded to equal size in a session.

In a block: how many objects each row has, int32 (n,), then the numbers of all objects, float32, row after row, then the
objects that they link to, int32. In a session: float32 (n, objects, numbers + 1 + links) as ObjectsField says, with
zeros behind the last object of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from easeml_plpy.columns.numeric_fields import ObjectsField
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.value_types import Array, Floats

MOST_DEPTH = 256
"""Levels of a tree: networks go through it level by level."""
COUNT, NUMBER, LINK = np.dtype("<i4"), np.dtype("<f4"), np.dtype("<i4")


class Objects(NamedTuple):
    """The objects of one row: numbers (n, n_numbers), and places from 1 of those that each links to, 0 for none, (n,
    n_links).
    """

    numbers: Array
    links: Array


def packed(rows: Sequence[Objects]) -> bytes:
    """Return rows in the form of a block."""
    counts = np.array([len(row.numbers) for row in rows], COUNT)
    numbers = b"".join(row.numbers.astype(NUMBER).tobytes() for row in rows)
    return counts.tobytes() + numbers + b"".join(row.links.astype(LINK).tobytes() for row in rows)


def unpacked(field: ObjectsField, payload: bytes, n_rows: int) -> Floats:
    """Undo `packed`, with rows side by side, (n_rows, *shape). Raises InvalidData, also for what is no tree."""
    if len(payload) < n_rows * COUNT.itemsize:
        raise _damaged(n_rows)
    counts = np.frombuffer(payload, COUNT, n_rows)
    n_objects = int(counts.sum(dtype=np.int64))
    most = int(counts.max(initial=0))
    size = counts.nbytes + n_objects * (field.n_numbers * NUMBER.itemsize + field.n_links * LINK.itemsize)
    if counts.min(initial=1) < 1 or most > field.shape[0] or len(payload) != size:
        raise _damaged(n_rows)
    numbers = np.frombuffer(payload, NUMBER, n_objects * field.n_numbers, counts.nbytes)
    links = np.frombuffer(payload, LINK, n_objects * field.n_links, counts.nbytes + numbers.nbytes)
    rows = np.repeat(np.arange(n_rows), counts)
    places = np.arange(n_objects) - np.repeat(np.cumsum(counts) - counts, counts)
    objects = links.reshape(n_objects, field.n_links)
    _check_trees(objects, rows, places, counts)
    whole = np.zeros((n_rows, *field.shape), np.float32)
    whole[rows, places, : field.n_numbers] = numbers.reshape(n_objects, field.n_numbers)
    whole[rows, places, field.n_numbers] = 1.0
    whole[rows, places, field.n_numbers + 1 :] = objects
    return whole


def side_by_side(field: ObjectsField, row: Objects) -> Floats:
    """Return one row as a session has it, (1, *shape)."""
    return unpacked(field, packed([row]), 1)


def numbers_of(field: ObjectsField, values: Array) -> Array:
    """Return the numbers of all objects of rows side by side, (objects, n_numbers)."""
    numbers: Array = values[values[..., field.n_numbers] > 0][:, : field.n_numbers]
    return numbers


def standardised(field: ObjectsField, values: Array) -> Floats:
    """Return rows side by side with their numbers standardised; padding stays 0."""
    whole = np.array(values, np.float32)
    is_there = whole[..., field.n_numbers : field.n_numbers + 1]
    bounds = field.range
    numbers = whole[..., : field.n_numbers] if bounds is None else np.clip(whole[..., : field.n_numbers], *bounds)
    whole[..., : field.n_numbers] = (numbers - field.mean) / field.scale * is_there
    return whole


def _check_trees(links: Array, rows: Array, places: Array, counts: Array) -> None:
    """Refuse links (objects, links) on which a walk from the leaves up would not end, or would take too long. An object
    may link only to later ones of its row, and only one object may link to each, so there is no cycle; no walk may be
    longer than MOST_DEPTH.
    """
    origin, link = np.nonzero(links)
    linked = links[origin, link]
    refused = (linked <= places[origin] + 1) | (linked > counts[rows[origin]])
    _refuse("leads to object {linked}, which is not behind it", refused, rows, places, origin, linked)
    targets = origin - places[origin] + linked - 1
    order = np.argsort(targets, kind="stable")
    is_again = np.zeros(len(targets), bool)
    is_again[order[1:]] = targets[order[1:]] == targets[order[:-1]]
    _refuse("leads to object {linked}, as another does", is_again, rows, places, origin, linked)
    # Of each object, one that is 1, 2, 4, ... levels above it, or the place behind the last where there is none.
    above = np.full(len(links) + 1, len(links))
    above[targets] = origin
    for _ in range(MOST_DEPTH.bit_length() - 1):
        above = above[above]
    deep = np.nonzero(above[:-1] < len(links))[0]
    _refuse(f"is more than {MOST_DEPTH} levels deep", np.ones(len(deep), bool), rows, places, deep, deep)


def _refuse(what: str, refused: Array, rows: Array, places: Array, objects: Array, linked: Array) -> None:
    if refused.any():
        first = int(np.argmax(refused))
        row, place = rows[objects[first]], places[objects[first]]
        raise InvalidData(
            f"row {row + 1} of a block is no tree: object {place + 1} {what.format(linked=linked[first])}",
            hint="Switch that example off, and have the task run again: easeml.run_task.",
        )


def _damaged(n_rows: int) -> InvalidData:
    return InvalidData(
        f"a block of {n_rows} series or trees is damaged",
        hint="Switch an example off and on, and have the task run again: easeml.run_task.",
    )
