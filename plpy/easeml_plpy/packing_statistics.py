"""What streams by while blocks are written: moments of the training rows, sizes and checksums of the partitions."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .encoder import CategoricalField, Field, NumberTarget, TensorField
from .moments import Moments
from .value_types import Array


class PackingStatistics:
    """Counts by partition, and the moments that the encoder will store."""

    def __init__(self, inputs: Sequence[Field]) -> None:
        self._moments = [None if isinstance(field, CategoricalField) else _moments(field) for field in inputs]
        self._target = Moments(is_elementwise=True)
        self.n_rows: Counter[tuple[str, int]] = Counter()
        self.n_bytes: Counter[int] = Counter()
        self.checksums: Counter[int] = Counter()

    def observe(self, fields: Sequence[Array], targets: Array) -> None:
        """Add training rows to the moments."""
        for moments, values in zip(self._moments, fields, strict=True):
            if moments is not None:
                moments.add(values)
        self._target.add(targets.astype(np.float64).reshape(-1, 1))

    def count(self, split: str, part: int, n_rows: int, packed: Sequence[bytes]) -> None:
        """Count a block: its inputs and targets, in the order of the blocks."""
        self.n_rows[split, part] += n_rows
        self.n_bytes[part] += sum(map(len, packed))
        if split == "train":
            self.checksums[part] = checksum(packed, self.checksums[part])

    def fields(self, inputs: Sequence[Field]) -> list[Field]:
        """Return the inputs with their statistics."""
        return [_measured(field, moments) for field, moments in zip(inputs, self._moments, strict=True)]

    def number_target(self, target: NumberTarget) -> NumberTarget:
        """Return the target with its mean and scale."""
        found = self._target.statistics()
        return replace(target, mean=float(found.mean[0]), scale=float(found.scale[0]))


def checksum(packed: Sequence[bytes], before: int) -> int:
    """Return the CRC-32 of a partition's training blocks so far, continued over one more; 0 before the first."""
    for part in packed:
        before = zlib.crc32(part, before)
    return before


def _moments(field: Field) -> Moments:
    """Return empty moments: by element for vectors, over all numbers of the column otherwise."""
    return Moments(is_elementwise=isinstance(field, TensorField) and len(field.shape) == 1)


def _measured(field: Field, moments: Moments | None) -> Field:
    if moments is None or isinstance(field, CategoricalField):
        return field
    found = moments.statistics()
    return replace(field, mean=found.mean, scale=found.scale, missing=found.missing)
