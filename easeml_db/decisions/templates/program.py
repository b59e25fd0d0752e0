"""A program of ease.ml: the shapes of inputs and outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_DIMENSIONS = 16
LARGEST_DIMENSION = 1_000_000
MOST_VALUES = 1 << 26
"""Numbers of a tensor, at most: 64 million, which PostgreSQL still holds in one value."""
MOST_FIELDS = 64
MOST_NAME_CHARACTERS = 40


@dataclass(frozen=True)
class Tensor:
    """An array of a fixed shape; without a name of its own it is called by its place."""

    shape: tuple[int, ...]
    name: str | None = None

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def n_values(self) -> int:
        """The numbers that it holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ObjectType:
    """The type of an object: tensors, and names of fields that each link to another object of this type."""

    tensors: tuple[Tensor, ...]
    recursive: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors: their own, or field1, field2 and so on by place."""
        return tuple(tensor.name or f"field{place}" for place, tensor in enumerate(self.tensors, 1))


@dataclass(frozen=True)
class Program:
    """Both ends of the function that a task learns."""

    input: ObjectType
    output: ObjectType
