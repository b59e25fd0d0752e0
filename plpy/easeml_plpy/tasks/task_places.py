"""The place of each example of a task: its split and partition, which later examples do not change.

An example's rank among all labelled examples of its class decides, through two sequences of low discrepancy. So each
class is spread over splits and partitions as evenly as rows can be, and no example moves from one split to another when
more are fed or some are switched off. One that is labelled late, or whose transaction ends late, moves the ranks of
those after it: so what the version before has stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from easeml_plpy.packing.dealing import SPLITS
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.tasks.task_blocks import TaskBlock

Integers = npt.NDArray[np.int64]
GOLDEN_STEP = 0.6180339887498949
CLASS_STEP = 0.41421356237309503
MANY_EXAMPLES, PARTITIONS_OF_MANY = 2_000, 4
"""From so many examples on a version has more than one partition."""


class Places(NamedTuple):
    """The split (a place in SPLITS) and the partition of each example."""

    splits: Integers
    parts: Integers


def ranks_of(classes: Integers) -> Integers:
    """Return the place of each example among those of its class, from 0, in the order in which they are given."""
    order = np.argsort(classes, kind="stable")
    grouped = classes[order]
    starts = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]]) if len(grouped) else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[starts, len(grouped)])
    ranks = np.empty(len(classes), np.int64)
    ranks[order] = np.arange(len(classes)) - np.repeat(starts, sizes)
    return ranks


def places_of(classes: Integers, n_partitions: int, validation_fraction: float, test_fraction: float) -> Places:
    """Return the places of examples given by their classes, in the order of their numbers."""
    ranks = ranks_of(classes)
    position = (ranks * GOLDEN_STEP + classes * CLASS_STEP) % 1.0
    bounds = np.array([1.0 - validation_fraction - test_fraction, 1.0 - test_fraction])
    return Places(np.searchsorted(bounds, position, side="right"), (ranks + classes) % n_partitions)


def kept_places(
    places: Places, examples: Integers, before: Sequence[TaskBlock], *, keeps_partitions: bool = True
) -> Places:
    """Return the places of examples, given in the order of their numbers, with those of the version before unchanged.
    keeps_partitions: it has as many partitions.
    """
    splits, parts = places.splits.copy(), places.parts.copy()
    for block in before if len(examples) else ():
        place = np.minimum(np.searchsorted(examples, block.examples), len(examples) - 1)
        kept = place[examples[place] == block.examples]
        splits[kept] = SPLITS.index(block.split)
        if keeps_partitions:
            parts[kept] = block.part
    return Places(splits, parts)


def partitions_of(n_examples: int, asked_for: int | None, before: int | None) -> int:
    """Return how many partitions a version has: the requested number, else that of the version before, else by size."""
    if asked_for is not None:
        return asked_for
    return max(before or 1, PARTITIONS_OF_MANY if n_examples >= MANY_EXAMPLES else 1)


def check_places(places: Places, is_packed: npt.NDArray[np.bool_], n_partitions: int) -> bool:
    """Return whether each partition has examples of each split. Raises InvalidData if a whole split has none."""
    filled = np.zeros((len(SPLITS), n_partitions), bool)
    filled[places.splits[is_packed], places.parts[is_packed]] = True
    if not filled.any(axis=1).all():
        missing = SPLITS[int(np.argmin(filled.any(axis=1)))]
        raise InvalidData(
            f"{int(is_packed.sum())} examples are too few: none of them is a {missing} example",
            hint="Feed more: about ten of each class make a beginning.",
        )
    return bool(filled.all())
