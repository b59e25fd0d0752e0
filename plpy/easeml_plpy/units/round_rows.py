"""The rows of a whole split, partition after partition, kept by a session for units that do whole rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from easeml_plpy.row_forms.datasets import TENSOR_BYTES, PartitionRows, read_rows
from easeml_plpy.server.cache import Bounded
from easeml_plpy.server.session import Kept, Session
from easeml_plpy.units.units import TrialSpec


@dataclass(frozen=True)
class RoundRows(PartitionRows):
    """Rows of all partitions; `n_rows` counts those of each."""

    n_rows: tuple[int, ...]


ROUNDS: Kept[Bounded[RoundRows]] = Kept(lambda: Bounded(TENSOR_BYTES, lambda rows: rows.nbytes))


def round_rows(session: Session, trial: TrialSpec, split: str) -> RoundRows:
    """Return the rows of a split in the trial's view, decoded once and kept within TENSOR_BYTES."""

    def read() -> RoundRows:
        numbers = range(len(trial.train_rows))
        return _joined([read_rows(session, trial.dataset_id, split, number, trial.view) for number in numbers])

    return session.kept(ROUNDS).get((trial.dataset_id, split, trial.view), read)


def _joined(parts: list[PartitionRows]) -> RoundRows:
    return RoundRows(
        inputs=torch.cat([part.inputs for part in parts]),
        targets=torch.cat([part.targets for part in parts]),
        raw_targets=np.concatenate([part.raw_targets for part in parts]),
        n_rows=tuple(len(part.targets) for part in parts),
        folds=None
        if parts[0].folds is None
        else np.concatenate([part.folds for part in parts if part.folds is not None]),
    )
