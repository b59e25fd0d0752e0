"""Long short-term memory (Hochreiter and Schmidhuber, 1997)."""

from __future__ import annotations

from easeml_plpy.architectures.series.recurrent import recurrent_architecture

LSTM = recurrent_architecture("lstm", "recurrent network of LSTM layers, for series", "LSTM", n_gates=4)
