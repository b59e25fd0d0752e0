"""A process's cache of rows that trials meet again: binned once for all trials, with each trial's margins.

It only saves time: all of it can be made again from the rows and the state. Rows are identified by the tensor that
holds them, which is kept alive as long as anything derived from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from easeml_plpy.architectures.tables.boosting import BoostingParameters
from easeml_plpy.architectures.tables.target_transforms import TargetTransform
from easeml_plpy.columns.task import Task
from easeml_plpy.server.cache import Bounded
from easeml_plpy.server.value_types import Array

if TYPE_CHECKING:
    import lightgbm
    import torch

KEPT_BYTES = 1 << 29
QUIET = {"verbosity": -1}


@dataclass(frozen=True)
class Margins:
    """The sums of the trees of a trial's first epochs: float64 (n, n_margins)."""

    inputs: torch.Tensor
    n_epochs: int
    values: Array

    @property
    def nbytes(self) -> int:
        """Memory of the rows and the margins."""
        return int(self.inputs.nbytes + self.values.nbytes)


@dataclass(frozen=True)
class _Binned:
    inputs: torch.Tensor
    targets: torch.Tensor
    data: lightgbm.Dataset

    @property
    def nbytes(self) -> int:
        return int(self.inputs.nbytes + 2 * self.inputs.numel())


_MARGINS: Bounded[Margins] = Bounded(KEPT_BYTES, lambda kept: kept.nbytes)
_BINNED: Bounded[_Binned] = Bounded(KEPT_BYTES, lambda kept: kept.nbytes)


def binned(
    task: Task,
    parameters: BoostingParameters,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    transform: TargetTransform | None,
) -> lightgbm.Dataset:
    """Return the rows as LightGBM bins them, with the targets as they are learnt."""

    def make() -> _Binned:
        import lightgbm

        categories = [k for k, column in enumerate(task.layout) if column.kind == "category"]
        rows = inputs.reshape(len(inputs), -1).numpy()
        wanted = targets.numpy() if transform is None else transform.forward(targets.numpy())
        data = lightgbm.Dataset(rows, wanted, params={**parameters.rows, **QUIET}, categorical_feature=categories)
        return _Binned(inputs, targets, data.construct())

    key = (id(inputs), id(targets), transform, tuple(sorted(parameters.rows.items())))
    return _BINNED.get(key, make).data


def kept_margins(owner: object, inputs: torch.Tensor) -> Margins | None:
    """Return what was kept for these rows, if it still is."""
    found = _MARGINS.pop((owner, id(inputs)))
    return found


def keep_margins(owner: object, margins: Margins) -> None:
    """Keep a trial's margins of some rows."""
    _MARGINS.put((owner, id(margins.inputs)), margins)
