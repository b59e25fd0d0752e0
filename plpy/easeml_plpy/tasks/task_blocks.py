"""Which blocks of a version of a task are kept from the version before, and which are packed anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Place = tuple[str, int]
"""A split and a partition."""


@dataclass(frozen=True, eq=False)
class TaskBlock:
    """A block: its place, the examples in it, and the version that holds it (None: to be packed)."""

    split: str
    part: int
    number: int
    examples: Integers
    holder_id: int | None

    @property
    def place(self) -> Place:
        """Its split and partition."""
        return self.split, self.part


def plan_blocks(before: Sequence[TaskBlock], placed: Mapping[Place, Integers], block_rows: int) -> list[TaskBlock]:
    """Return the blocks of the next version, in order, for the examples placed in each split and partition.

    A block stays unchanged while all its examples are wanted in its place; otherwise it is packed without those that
    left. New examples fill the last block of their place, then further ones.
    """
    planned: list[TaskBlock] = []
    for place, examples in sorted(placed.items()):
        mine = [block for block in before if block.place == place]
        planned += _place_blocks(place, mine, examples, block_rows)
    return planned


def _place_blocks(place: Place, before: Sequence[TaskBlock], examples: Integers, block_rows: int) -> list[TaskBlock]:
    kept = [block for block in (_without_gone(block, examples) for block in before) if len(block.examples)]
    present = np.concatenate([block.examples for block in kept]) if kept else np.zeros(0, np.int64)
    new = np.setdiff1d(examples, present)
    if len(new) and kept and len(kept[-1].examples) < block_rows:
        room = block_rows - len(kept[-1].examples)
        last = kept.pop()
        kept.append(replace(last, examples=np.concatenate([last.examples, new[:room]]), holder_id=None))
        new = new[room:]
    first = max((block.number for block in before), default=-1) + 1
    chunks = [new[start : start + block_rows] for start in range(0, len(new), block_rows)]
    return kept + [TaskBlock(*place, first + k, chunk, None) for k, chunk in enumerate(chunks)]


def _without_gone(block: TaskBlock, examples: Integers) -> TaskBlock:
    stays = np.isin(block.examples, examples)
    return block if stays.all() else replace(block, examples=block.examples[stays], holder_id=None)
