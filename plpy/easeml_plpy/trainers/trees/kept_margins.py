"""A process's cache of margins: what the trees of a trial's first epochs add up to for rows that it meets again.

It only saves time: all of it can be made again from the rows and the state. Rows are identified by the tensor that
holds them, which is kept alive as long as anything derived from it: otherwise its id could become that of other rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from easeml_plpy.server.cache import Bounded
from easeml_plpy.server.value_types import Array

if TYPE_CHECKING:
    import torch

KEPT_BYTES = 1 << 29


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


_MARGINS: Bounded[Margins] = Bounded(KEPT_BYTES, lambda kept: kept.nbytes)


def kept_margins(owner: object, inputs: torch.Tensor) -> Margins | None:
    """Return what was kept for these rows, if it still is. It is taken out: the next epoch puts its own there."""
    return _MARGINS.pop((owner, id(inputs)))


def keep_margins(owner: object, margins: Margins) -> None:
    """Keep a trial's margins of some rows."""
    _MARGINS.put((owner, id(margins.inputs)), margins)
