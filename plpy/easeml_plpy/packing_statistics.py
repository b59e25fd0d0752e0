"""What streams by while blocks are written: statistics of the training rows, sizes and checksums of the partitions."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .calendar_parts import varying_parts
from .coded_fields import CategoricalField, TextField
from .encoder import Field, LabelTarget, NumberField, NumericField, ObjectsField, Target, TensorField, TensorTarget
from .knots import KnotSample, n_positions
from .moments import Moments
from .object_rows import numbers_of
from .target_statistics import MANY, TargetStatistics, outputs_of
from .text_statistics import TokenCounts
from .value_types import Array

INTEGERS = frozenset({"int2", "int4", "int8"})


class PackingStatistics:
    """Counts by partition, and the statistics that the encoder will store."""

    def __init__(self, inputs: Sequence[Field], target: Target, n_train_rows: int) -> None:
        n_numbers = sum(n_positions(measured_as(field)) for field in inputs)
        self._numbers = {
            k: _Measure(field, KnotSample(measured_as(field), n_train_rows, n_numbers, is_alone=len(inputs) == 1))
            for k, field in enumerate(inputs)
            if isinstance(field, NumericField | TensorField)
        }
        self._texts = {k: TokenCounts() for k, field in enumerate(inputs) if isinstance(field, TextField)}
        self._outputs = outputs_of(len(target.labels) if isinstance(target, LabelTarget) else None)
        self._categories = {
            k: TargetStatistics.empty(len(field.categories), self._outputs.n_outputs)
            for k, field in enumerate(inputs)
            if isinstance(field, CategoricalField) and len(field.categories) > MANY and self._outputs.n_outputs
        }
        self._target = Moments(is_elementwise=True)
        self._target_range = (math.inf, -math.inf)
        self.n_rows: Counter[tuple[str, int]] = Counter()
        self.n_bytes: Counter[int] = Counter()
        self.checksums: Counter[int] = Counter()

    def observe(self, fields: Sequence[Array], targets: Array, folds: Array) -> None:
        """Add training rows, which belong to these folds, to the statistics."""
        for k, measure in self._numbers.items():
            measure.add(fields[k])
        for k, counts in self._texts.items():
            counts.add(fields[k])
        for k, sums in self._categories.items():
            sums.add(fields[k], self._outputs.of(targets), folds)
        numbers = targets.astype(np.float64)
        self._target.add(numbers.reshape(-1, 1))
        low, high = self._target_range
        self._target_range = float(numbers.min(initial=low)), float(numbers.max(initial=high))

    def count(self, split: str, part: int, n_rows: int, packed: Sequence[bytes]) -> None:
        """Count a block: its inputs and targets, in the order of the blocks."""
        self.n_rows[split, part] += n_rows
        self.n_bytes[part] += sum(map(len, packed))
        if split == "train":
            self.checksums[part] = checksum(packed, self.checksums[part])

    def fields(self, inputs: Sequence[Field]) -> list[Field]:
        """Return the inputs with their statistics."""
        return [self._measured(k, field) for k, field in enumerate(inputs)]

    def distinct(self, inputs: Sequence[Field]) -> list[str]:
        """Return the columns of whole numbers that never repeat, as far as the sample tells."""
        whole = [k for k, field in enumerate(inputs) if field.type in INTEGERS]
        return [inputs[k].column for k in whole if self._numbers[k].is_distinct()]

    def _measured(self, k: int, field: Field) -> Field:
        if isinstance(field, TextField):
            return self._texts[k].measured(field)
        if isinstance(field, CategoricalField):
            return replace(field, targets=self._categories.get(k))
        return self._numbers[k].measured(field)

    def measured_target(self, target: Target) -> Target:
        """Return the target with its statistics: mean, scale and range of numbers; 8-bit values have a range anyhow."""
        if isinstance(target, LabelTarget):
            return target
        found, (low, high) = self._target.statistics(), self._target_range
        mean, scale = float(found.mean[0]), float(found.scale[0])
        if isinstance(target, TensorTarget) and target.is_bytes:
            return replace(target, mean=mean, scale=scale)
        return replace(target, mean=mean, scale=scale, low=low, high=high) if low <= high else target


def checksum(packed: Sequence[bytes], before: int) -> int:
    """Return the CRC-32 of a partition's training blocks so far, continued over one more; 0 before the first."""
    for part in packed:
        before = zlib.crc32(part, before)
    return before


def measured_as(field: Field) -> Field:
    """Return what statistics are taken of: the numbers of the objects of a series or tree, else the field itself."""
    return field.numbers if isinstance(field, ObjectsField) else field


class _Measure:
    """Statistics of one column of numbers: moments by element for vectors, over all numbers of the column otherwise."""

    def __init__(self, field: NumberField, sample: KnotSample) -> None:
        measured = measured_as(field)
        self._moments = Moments(is_elementwise=isinstance(measured, TensorField) and len(measured.shape) == 1)
        self._objects = field if isinstance(field, ObjectsField) else None
        self._sample = sample

    def add(self, values: Array) -> None:
        """Look at the next training rows."""
        if self._objects is not None:
            values = numbers_of(self._objects, values)
        self._moments.add(values)
        self._sample.add(values)

    def is_distinct(self) -> bool:
        """Say whether no number comes twice, as far as the sample tells."""
        return self._sample.is_distinct()

    def measured(self, field: NumberField) -> NumberField:
        """Return the field with its statistics."""
        found = self._moments.statistics()
        knots = self._sample.knots()
        if isinstance(field, NumericField):
            calendar = varying_parts(self._sample.values()[:, 0]) if field.is_time else ()
            return replace(
                field, mean=found.mean, scale=found.scale, missing=found.missing, knots=knots, calendar=calendar
            )
        return replace(field, mean=found.mean, scale=found.scale, missing=found.missing, knots=knots)
