"""LSTM in both directions (Graves and Schmidhuber, 2005): the final states of both give the answer."""

from __future__ import annotations

from easeml_plpy.architectures.series.recurrent import recurrent_architecture

BILSTM = recurrent_architecture(
    "bilstm",
    "recurrent network of LSTM layers that go over a series in both directions",
    "LSTM",
    n_gates=4,
    n_directions=2,
)
