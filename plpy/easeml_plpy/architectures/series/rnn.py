"""A plain recurrent network (Elman, 1990), with tanh."""

from __future__ import annotations

from easeml_plpy.architectures.series.recurrent import recurrent_architecture

RNN = recurrent_architecture("rnn", "recurrent network of plain layers, for series", "RNN", n_gates=1)
