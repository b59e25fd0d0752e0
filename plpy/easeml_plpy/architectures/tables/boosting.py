"""What the trainer 'boosting' trains: rounds of trees, each fitted to the residuals of all rounds before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from easeml_plpy.server.value_types import JSON


@dataclass(frozen=True)
class BoostingParameters:
    """Parameters of LightGBM: those of its binned rows, which trials can share, and those of its trees.

    An epoch adds `rounds_per_epoch` rounds, of `n_margins` trees each. With `is_balanced` all classes have the same
    weight.
    """

    rows: Mapping[str, JSON]
    trees: Mapping[str, JSON]
    rounds_per_epoch: int
    n_margins: int
    is_balanced: bool
