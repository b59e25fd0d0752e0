"""Statistics gathered while blocks are written: those of the training rows, and sizes and checksums of the partitions.

Computing a block's contribution (`look`) is separate from adding it (`add`): blocks may be packed on several servers,
but their contributions are added in the order of the blocks. So the statistics are the same bytes wherever blocks were
packed.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from easeml_plpy.columns.calendar_parts import varying_parts
from easeml_plpy.columns.coded_fields import NULL_TEXT, CategoricalField, TextField
from easeml_plpy.columns.encoder import (
    Field,
    LabelTarget,
    NumberField,
    NumericField,
    ObjectsField,
    Target,
    TensorField,
    TensorTarget,
)
from easeml_plpy.columns.object_rows import numbers_of
from easeml_plpy.columns.quantiles import KnotSample, n_positions
from easeml_plpy.columns.running_statistics import BlockMoments, Moments, moments_of
from easeml_plpy.columns.target_statistics import MANY, TargetStatistics, outputs_of
from easeml_plpy.columns.text_statistics import TokenCounts, token_frequencies
from easeml_plpy.server.value_types import Array

INTEGERS = frozenset({"int2", "int4", "int8"})
BlockFacts: TypeAlias = dict[str, Array]
"""What one block of training rows adds to the statistics, by name; packing on nodes sends it."""


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
        self._observed = target.numbers if isinstance(target, TensorTarget) else np.asarray
        self._target = Moments(is_elementwise=True)
        self._target_range = (math.inf, -math.inf)
        self.n_rows: Counter[tuple[str, int]] = Counter()
        self.n_bytes: Counter[int] = Counter()
        self.checksums: Counter[int] = Counter()

    def observe(self, fields: Sequence[Array], targets: Array, folds: Array) -> None:
        """Add training rows, which belong to these folds, to the statistics."""
        self.add(self.look(fields, targets, folds, None))

    def look(self, fields: Sequence[Array], targets: Array, folds: Array, n_before: int | None) -> BlockFacts:
        """Return what a block of training rows adds; `n_before`: training rows in the blocks before it, None if those
        are the ones that were added."""
        facts: BlockFacts = {"n_rows": np.array(len(targets))}
        for k, measure in self._numbers.items():
            facts |= _named(f"number {k}", measure.look(fields[k], n_before))
        for k in self._texts:
            n_missing = int((fields[k][:, 0] == NULL_TEXT).sum())
            facts |= {f"text {k} tokens": token_frequencies(fields[k]), f"text {k} n_missing": np.array(n_missing)}
        for k, sums in self._categories.items():
            counted, summed = sums.look(fields[k], self._outputs.of(targets), folds)
            facts |= {f"category {k} counts": counted, f"category {k} sums": summed}
        numbers = self._observed(targets).astype(np.float64)
        facts |= _named("target", _moment_facts(moments_of(numbers.reshape(-1, 1), True)))
        low, high = numbers.min(initial=math.inf), numbers.max(initial=-math.inf)
        return facts | {"target low": np.array(low), "target high": np.array(high)}

    def add(self, facts: BlockFacts) -> None:
        """Add the contribution of a block. Blocks come in order, because floating-point sums depend on it."""
        n_rows, parts = int(facts["n_rows"]), _parts(facts)
        for k, measure in self._numbers.items():
            measure.add(parts[f"number {k}"])
        for k, counts in self._texts.items():
            counts.combine(facts[f"text {k} tokens"], n_rows, int(facts[f"text {k} n_missing"]))
        for k, sums in self._categories.items():
            sums.add(facts[f"category {k} counts"], facts[f"category {k} sums"])
        self._target.combine(_block_moments(parts["target"]))
        low, high = self._target_range
        self._target_range = min(low, float(facts["target low"])), max(high, float(facts["target high"]))

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
        """Return the columns of whole numbers that never repeat, as far as the sample shows."""
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
        statistics, (low, high) = self._target.statistics(), self._target_range
        mean, scale = float(statistics.mean[0]), float(statistics.scale[0])
        if isinstance(target, TensorTarget) and target.is_bytes:
            return replace(target, mean=mean, scale=scale)
        return replace(target, mean=mean, scale=scale, low=low, high=high) if low <= high else target


def _moment_facts(moments: BlockMoments) -> BlockFacts:
    facts: BlockFacts = {"count": np.asarray(moments.n), "mean": moments.mean, "squares": moments.squares}
    return facts if moments.missing is None else facts | {"missing": moments.missing}


def _block_moments(facts: BlockFacts) -> BlockMoments:
    return BlockMoments(facts["count"], facts["mean"], facts["squares"], facts.get("missing"))


def _named(prefix: str, facts: BlockFacts) -> BlockFacts:
    return {f"{prefix} {name}": values for name, values in facts.items()}


def _parts(facts: BlockFacts) -> Mapping[str, BlockFacts]:
    """Return facts by the prefix that `_named` gave them."""
    parts: defaultdict[str, BlockFacts] = defaultdict(dict)
    for named, values in facts.items():
        prefix, _, name = named.rpartition(" ")
        parts[prefix][name] = values
    return parts


def checksum(packed: Sequence[bytes], before: int) -> int:
    """Return the CRC-32 of a partition's training blocks so far, continued over one more; 0 before the first."""
    for part in packed:
        before = zlib.crc32(part, before)
    return before


def measured_as(field: Field) -> Field:
    """Return what statistics are computed of: the numbers of the objects of a series or tree, else the field itself."""
    return field.numbers if isinstance(field, ObjectsField) else field


class _Measure:
    """Statistics of one column of numbers: moments by element for vectors, over all numbers of the column otherwise."""

    def __init__(self, field: NumberField, sample: KnotSample) -> None:
        measured = measured_as(field)
        self._moments = Moments(is_elementwise=isinstance(measured, TensorField) and len(measured.shape) == 1)
        self._objects = field if isinstance(field, ObjectsField) else None
        self._sample = sample
        self._n_seen = 0

    def look(self, values: Array, n_before: int | None) -> BlockFacts:
        """Return the contribution of training rows after `n_before` others (None: those that were added)."""
        if self._objects is not None:
            values = numbers_of(self._objects, values)
        before = self._n_seen if n_before is None else n_before
        low, high, sampled = self._sample.look(values, before)
        facts = _moment_facts(moments_of(values, self._moments.is_elementwise)) | {"low": low, "high": high}
        facts["n"] = np.array(len(values))  # of series and trees more than there are rows
        return facts if sampled is None else facts | {"sample": sampled}

    def add(self, facts: BlockFacts) -> None:
        """Add what `look` returned."""
        self._moments.combine(_block_moments(facts))
        self._sample.add(facts["low"], facts["high"], facts.get("sample"))
        self._n_seen += int(facts["n"])

    def is_distinct(self) -> bool:
        """Return whether no number occurs twice, as far as the sample shows."""
        return self._sample.is_distinct()

    def measured(self, field: NumberField) -> NumberField:
        """Return the field with its statistics."""
        moments = self._moments.statistics()
        if isinstance(field, NumericField):
            field = replace(field, calendar=varying_parts(self._sample.values()[:, 0]) if field.is_time else ())
        knots = self._sample.knots()
        return replace(field, mean=moments.mean, scale=moments.scale, missing=moments.missing, knots=knots)
