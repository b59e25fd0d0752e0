"""Gated recurrent units (Cho et al., 2014)."""

from __future__ import annotations

from easeml_plpy.architectures.series.recurrent import recurrent_architecture

GRU = recurrent_architecture("gru", "recurrent network of gated units, for series", "GRU", n_gates=3)
