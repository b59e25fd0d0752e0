"""What a session keeps between units, in `GD`: tensors of partitions and the last live trials.

Everything here can be rebuilt from the tables, and is bounded. `GD` is shared by all roles of a session, so entry
points check what the caller may see before they look in here.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from .encoding import encode, fields_from_bytes
from .errors import NotFound
from .session import query
from .task import Task

T = TypeVar("T")
TENSOR_BYTES = 1 << 30
N_LIVE_TRIALS = 4


class Bounded(Generic[T]):
    """A least-recently-used store that never holds more than `limit` units of weight (but always the newest)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._items: OrderedDict[Hashable, tuple[int, T]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T], weigh: Callable[[T], int]) -> T:
        """Return what is kept under `key`, or make and keep it."""
        if key not in self._items:
            self.put(key, make(), weigh)
        self._items.move_to_end(key)
        return self._items[key][1]

    def put(self, key: Hashable, value: T, weigh: Callable[[T], int] = lambda _: 1) -> None:
        """Keep a value, dropping the least recently used ones."""
        self._items[key] = (weigh(value), value)
        self._items.move_to_end(key)
        while len(self._items) > 1 and sum(weight for weight, _ in self._items.values()) > self.limit:
            self._items.popitem(last=False)

    def pop(self, key: Hashable) -> T | None:
        """Take a value out."""
        return self._items.pop(key, (0, None))[1]


@dataclass(frozen=True)
class Rows:
    """Rows of one partition: inputs float32 (n, *input_shape); targets int64 or float32 (n,); raw float64 targets."""

    inputs: torch.Tensor
    targets: torch.Tensor
    raw_targets: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Dataset:
    """What training needs to know of a data set."""

    encoder: dict[str, Any]
    task: Task

    def raw(self, outputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Outputs in the target's own units: predicted values back from the standard scale."""
        if self.task.kind == "classification":
            return outputs
        target = self.encoder["target"]
        values: np.ndarray[Any, Any] = outputs.astype(np.float64) * target["scale"] + target["mean"]
        return values


def bounded(GD: dict[str, Any], name: str, limit: int) -> Bounded[Any]:
    """Return the session's store of that name."""
    store: Bounded[Any] = GD.setdefault(f"easeml_{name}", Bounded(limit))
    return store


def dataset(plpy: Any, GD: dict[str, Any], dataset_id: int) -> Dataset:
    """Return a data set's encoder and task (they never change under one id)."""
    kept: Bounded[Dataset] = bounded(GD, "datasets", 64)
    return kept.get(dataset_id, lambda: _read_dataset(plpy, GD, dataset_id), lambda _: 1)


def _read_dataset(plpy: Any, GD: dict[str, Any], dataset_id: int) -> Dataset:
    sql = "SELECT encoder, task, input_shape, n_outputs FROM easeml.datasets WHERE dataset_id = $1"
    rows = query(plpy, GD, sql, ["int8"], [dataset_id])
    if not rows:
        raise NotFound(f"data set {dataset_id} is gone")
    row = rows[0]
    return Dataset(json.loads(row["encoder"]), Task(row["task"], tuple(row["input_shape"]), row["n_outputs"]))


def rows_of(plpy: Any, GD: dict[str, Any], dataset_id: int, split: str, partition_number: int) -> Rows:
    """Return a partition's rows as tensors, decoded once and kept within TENSOR_BYTES."""
    kept: Bounded[Rows] = bounded(GD, "rows", TENSOR_BYTES)
    return kept.get(
        (dataset_id, split, partition_number),
        lambda: _read_rows(plpy, GD, dataset_id, split, partition_number),
        lambda rows: rows.inputs.nbytes + rows.targets.nbytes,
    )


def _read_rows(plpy: Any, GD: dict[str, Any], dataset_id: int, split: str, partition_number: int) -> Rows:
    data = dataset(plpy, GD, dataset_id)
    sql = (
        "SELECT n_rows, inputs, targets FROM easeml.blocks"
        " WHERE dataset_id = $1 AND split = $2 AND partition_number = $3 ORDER BY block_number"
    )
    blocks = query(plpy, GD, sql, ["int8", "text", "int4"], [dataset_id, split, partition_number])
    is_label = data.task.kind == "classification"
    parts = [
        encode(data.encoder, fields_from_bytes(data.encoder, block["inputs"], block["n_rows"])) for block in blocks
    ]
    targets = [np.frombuffer(block["targets"], "<i4" if is_label else "<f8") for block in blocks]
    inputs = np.concatenate(parts) if parts else np.zeros((0, *data.task.input_shape), np.float32)
    raw = np.concatenate(targets) if targets else np.zeros(0, "<i4" if is_label else "<f8")
    target = data.encoder["target"]
    values = raw.astype(np.int64) if is_label else ((raw - target["mean"]) / target["scale"]).astype(np.float32)
    return Rows(torch.from_numpy(inputs), torch.from_numpy(values), raw)
