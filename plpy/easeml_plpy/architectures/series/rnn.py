"""A plain recurrent network (Elman, 1990), with tanh."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from easeml_plpy.architectures.series.recurrent import recurrent_architecture

if TYPE_CHECKING:
    from torch import nn


def _layer() -> Callable[..., nn.RNNBase]:
    from torch import nn

    return nn.RNN


RNN = recurrent_architecture("rnn", "recurrent network of plain layers, for series", _layer, n_gates=1)
