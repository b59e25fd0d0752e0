"""Datasets as sessions see them: encoder and task, and the rows of a partition as tensors, decoded once and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from easeml_plpy.columns.encoder import Encoder, LabelTarget, Target, TensorTarget
from easeml_plpy.columns.encoding import fields_from_bytes, targets_from_bytes
from easeml_plpy.columns.target_statistics import folds_of
from easeml_plpy.columns.task import Task
from easeml_plpy.row_forms import RowForm, row_form_of, task_in
from easeml_plpy.server.cache import Bounded
from easeml_plpy.server.errors import NotFound
from easeml_plpy.server.session import Kept, Session, Statement
from easeml_plpy.server.value_types import Array

if TYPE_CHECKING:
    import torch

TENSOR_BYTES = 1 << 30
N_DATASETS = 64


@dataclass(frozen=True)
class Dataset:
    """The facts about a dataset that training needs."""

    encoder: Encoder
    _views: dict[str, RowForm] = field(default_factory=dict, init=False, repr=False, compare=False)
    _tasks: dict[str, Task] = field(default_factory=dict, init=False, repr=False, compare=False)

    def view(self, name: str) -> RowForm:
        """Return the row form of that name, or `standard` if this dataset does not have it."""
        if name not in self._views:
            self._views[name] = row_form_of(name, self.encoder)
        return self._views[name]

    def task(self, view: str = "standard") -> Task:
        """Return the task of a trial whose architecture takes that row form."""
        if view not in self._tasks:
            self._tasks[view] = task_in(self.view(view), self.encoder)
        return self._tasks[view]

    def encode(self, view: str, fields: Sequence[Array], folds: Array | None = None) -> Array:
        """Return the inputs of rows in that row form; `folds` are those of training rows."""
        return self.view(view).encode(self.encoder, fields, folds)

    def stored_split(self, split: str) -> str:
        """Return the split of the blocks that hold a split: with folds, training rows validate, each in its turn."""
        return "train" if split == "validation" and self.encoder.n_folds else split

    def raw(self, outputs: Array) -> Array:
        """Return outputs in the target's own units: predicted values back from the standard scale."""
        target = self.encoder.target
        if isinstance(target, LabelTarget):
            return outputs
        if isinstance(target, TensorTarget):
            return target.raw(outputs)
        values: Array = outputs.astype(np.float64) * target.scale + target.mean
        return values


@dataclass(frozen=True)
class PartitionRows:
    """Rows of one partition in a view: inputs (n, *input_shape) of the task's type; targets int64 or float32 (n,), of
    tensors (n, n_outputs); raw targets as they are stored. `folds` (n,): the member that must not learn from a row, but
    answers for it; None if other rows validate.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    raw_targets: Array
    folds: Array | None = field(default=None, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Memory of the tensors."""
        return self.inputs.nbytes + self.targets.nbytes


class _Block(NamedTuple):
    n_rows: int
    inputs: bytes
    targets: bytes


def _dataset(encoder: str) -> Dataset:
    return Dataset(Encoder.from_text(encoder))


DATASET = Statement("SELECT encoder FROM {schema}.datasets WHERE dataset_id = $1", ("int8",), _dataset)
BLOCKS = Statement(
    "SELECT n_rows, inputs, targets FROM {schema}.version_blocks"
    " WHERE dataset_id = $1 AND split = $2 AND partition_number = $3 ORDER BY block_number",
    ("int8", "text", "int4"),
    _Block,
)

DATASETS: Kept[Bounded[Dataset]] = Kept(lambda: Bounded(N_DATASETS))
ROWS: Kept[Bounded[PartitionRows]] = Kept(lambda: Bounded(TENSOR_BYTES, lambda rows: rows.nbytes))


def dataset(session: Session, dataset_id: int) -> Dataset:
    """Return a dataset's encoder, which never changes under one id. Raises NotFound."""

    def read() -> Dataset:
        datasets = session.rows(DATASET, dataset_id)
        if not datasets:
            raise NotFound(f"dataset {dataset_id} is gone")
        return datasets[0]

    return session.kept(DATASETS).get(dataset_id, read)


def partition_rows(
    session: Session, dataset_id: int, split: str, partition_number: int, view: str = "standard"
) -> PartitionRows:
    """Return a partition's rows in a row form as tensors, decoded once and kept within TENSOR_BYTES."""
    name = dataset(session, dataset_id).view(view).name

    def read() -> PartitionRows:
        return read_rows(session, dataset_id, split, partition_number, view)

    return session.kept(ROWS).get((dataset_id, split, partition_number, name), read)


def read_rows(session: Session, dataset_id: int, split: str, partition_number: int, view: str) -> PartitionRows:
    """Return a partition's rows in a row form as tensors, without keeping them."""
    data = dataset(session, dataset_id)
    stored = data.stored_split(split)
    blocks = session.rows(BLOCKS, dataset_id, stored, partition_number)
    rows = _decoded(data, view, blocks, is_training=stored == "train")
    if data.encoder.n_folds and stored == "train":
        return replace(rows, folds=np.full(len(rows.targets), partition_number))
    return rows


def _decoded(data: Dataset, view: str, blocks: Sequence[_Block], *, is_training: bool) -> PartitionRows:
    import torch

    task = data.task(view)
    target = data.encoder.target
    parts, n_rows = [], 0
    for block in blocks:
        fields = fields_from_bytes(data.encoder, block.inputs, block.n_rows)
        parts.append(data.encode(view, fields, folds_of(n_rows, block.n_rows) if is_training else None))
        n_rows += block.n_rows
    targets = [targets_from_bytes(target, block.targets, block.n_rows) for block in blocks]
    inputs = np.concatenate(parts) if parts else np.zeros((0, *task.input_shape), task.input_type)
    raw = np.concatenate(targets) if targets else targets_from_bytes(target, b"", 0)
    return PartitionRows(torch.from_numpy(inputs), torch.from_numpy(_learnt(target, raw)), raw)


def _learnt(target: Target, raw: Array) -> Array:
    """Return targets as they are learnt: classes, or numbers on the standard scale."""
    if isinstance(target, LabelTarget):
        return raw.astype(np.int64)
    if isinstance(target, TensorTarget):
        return target.standard(raw)
    return ((raw - target.mean) / target.scale).astype(np.float32)
