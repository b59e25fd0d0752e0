"""Gated recurrent units (Cho et al., 2014)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from easeml_plpy.architectures.series.recurrent import recurrent_architecture

if TYPE_CHECKING:
    from torch import nn


def _layer() -> Callable[..., nn.RNNBase]:
    from torch import nn

    return nn.GRU


GRU = recurrent_architecture("gru", "recurrent network of gated units, for series", _layer, n_gates=3)
