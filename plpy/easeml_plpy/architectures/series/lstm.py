"""Long short-term memory (Hochreiter and Schmidhuber, 1997)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from easeml_plpy.architectures.series.recurrent import recurrent_architecture

if TYPE_CHECKING:
    from torch import nn


def _layer() -> Callable[..., nn.RNNBase]:
    from torch import nn

    return nn.LSTM


LSTM = recurrent_architecture("lstm", "recurrent network of LSTM layers, for series", _layer, n_gates=4)
