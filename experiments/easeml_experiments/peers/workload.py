"""What all methods train: trials of one architecture on partitioned rows, as files that every process can read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from easeml_experiments.experiment_server import Session
from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.columns.encoding import encode, fields_from_bytes
from easeml_plpy.columns.task import Task

Tensors = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Workload:
    """`configs[i]` is that of trial number i + 1; `n_workers` is the number of processes, and of partitions."""

    architecture: str
    configs: tuple[Mapping[str, Any], ...]
    input_shape: tuple[int, ...]
    n_outputs: int
    max_epochs: int
    seed: int
    n_workers: int

    @property
    def task(self) -> Task:
        """What the trials learn."""
        return Task("classification", self.input_shape, self.n_outputs)

    @property
    def numbers(self) -> range:
        """Trial numbers, from 1 as in the database."""
        return range(1, len(self.configs) + 1)

    def config(self, trial_number: int) -> Mapping[str, Any]:
        """Return the config of a trial."""
        return self.configs[trial_number - 1]

    def with_batch_size(self, batch_size: int) -> Workload:
        """Return the same trials with another batch."""
        return replace(self, configs=tuple({**config, "batch_size": batch_size} for config in self.configs))


def save(workload: Workload, folder: Path) -> None:
    """Write the workload where `load` finds it."""
    (folder / "workload.json").write_text(json.dumps(asdict(workload)), encoding="utf-8")


def load(folder: Path) -> Workload:
    """Read what `save` wrote."""
    known = json.loads((folder / "workload.json").read_text(encoding="utf-8"))
    known["configs"], known["input_shape"] = tuple(known["configs"]), tuple(known["input_shape"])
    return Workload(**known)


# Rows


def export_rows(session: Session, dataset: str, folder: Path, n_partitions: int) -> None:
    """Write each partition's rows as the units of the database see them: inputs float32, targets int64."""
    for split in ("train", "validation"):
        for number in range(n_partitions):
            torch.save(_tensors(session, dataset, split, number), _path(folder, split, number))


def partition(folder: Path, split: str, number: int) -> Tensors:
    """Return rows of one partition."""
    inputs, targets = torch.load(_path(folder, split, number), weights_only=True)
    return inputs, targets


def all_rows(folder: Path, split: str, n_partitions: int) -> Tensors:
    """Return rows of all partitions."""
    inputs, targets = zip(*(partition(folder, split, number) for number in range(n_partitions)), strict=True)
    return torch.cat(inputs), torch.cat(targets)


def n_bytes(*rows: Tensors) -> int:
    """Return bytes of rows in memory."""
    return sum(tensor.nbytes for tensors in rows for tensor in tensors)


def _path(folder: Path, split: str, number: int) -> Path:
    return folder / f"{split}_{number}.pt"


def _tensors(session: Session, dataset: str, split: str, number: int) -> Tensors:
    query = (
        "SELECT d.encoder, b.n_rows, b.inputs, b.targets FROM easeml.blocks b JOIN easeml.datasets d USING (dataset_id)"
        " WHERE d.dataset_name = %s AND b.split = %s AND b.partition_number = %s ORDER BY b.block_number"
    )
    rows: Sequence[dict[str, Any]] = session.execute(query, [dataset, split, number], binary=True).fetchall()
    encoder = Encoder.from_json(rows[0]["encoder"])
    inputs = [encode(encoder, fields_from_bytes(encoder, row["inputs"], row["n_rows"])) for row in rows]
    targets = [np.frombuffer(row["targets"], "<i4").astype(np.int64) for row in rows]
    return torch.from_numpy(np.concatenate(inputs)), torch.from_numpy(np.concatenate(targets))
