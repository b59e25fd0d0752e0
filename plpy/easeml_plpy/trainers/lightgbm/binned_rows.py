"""A process's cache of rows as LightGBM bins them, once for all trials that bin them alike.

It only saves time, as lineage.py does: binning a table takes about as long as the first trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from easeml_plpy.architectures.tables.target_transforms import TargetTransform
from easeml_plpy.columns.task import Task
from easeml_plpy.server.cache import Bounded
from easeml_plpy.trainers.lightgbm.architecture import LightGBMParameters
from easeml_plpy.trainers.lightgbm.memory import demand_binning
from easeml_plpy.trainers.trees.lineage import KEPT_BYTES

if TYPE_CHECKING:
    import lightgbm
    import torch

QUIET = {"verbosity": -1}


@dataclass(frozen=True)
class _Binned:
    inputs: torch.Tensor
    targets: torch.Tensor
    data: lightgbm.Dataset

    @property
    def nbytes(self) -> int:
        return int(self.inputs.nbytes + 2 * self.inputs.numel())


_BINNED: Bounded[_Binned] = Bounded(KEPT_BYTES, lambda kept: kept.nbytes)


def binned(
    task: Task,
    parameters: LightGBMParameters,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    transform: TargetTransform | None,
) -> lightgbm.Dataset:
    """Return the rows as LightGBM bins them, with the targets as they are learnt."""

    def make() -> _Binned:
        import lightgbm

        demand_binning(len(inputs), task.n_features)
        categories = [k for k, column in enumerate(task.layout) if column.kind == "category"]
        rows = inputs.reshape(len(inputs), -1).numpy()
        learnt = targets.numpy() if transform is None else transform.forward(targets.numpy())
        data = lightgbm.Dataset(rows, learnt, params={**parameters.rows, **QUIET}, categorical_feature=categories)
        return _Binned(inputs, targets, data.construct())

    key = (id(inputs), id(targets), transform, tuple(sorted(parameters.rows.items())))
    return _BINNED.get(key, make).data
