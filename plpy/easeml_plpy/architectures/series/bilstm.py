"""LSTM in both directions (Graves and Schmidhuber, 2005): the final states of both give the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from easeml_plpy.architectures.series.recurrent import recurrent_architecture

if TYPE_CHECKING:
    from torch import nn


def _layer() -> Callable[..., nn.RNNBase]:
    from torch import nn

    return nn.LSTM


BILSTM = recurrent_architecture(
    "bilstm",
    "recurrent network of LSTM layers that go over a series in both directions",
    _layer,
    n_gates=4,
    n_directions=2,
)
