"""Trials that `easeml export` has written, read and asked without a database.

import easeml_model
model = easeml_model.load("wine-17.safetensors")
model.predict([{"alcohol": 13.2, "color": "red"}])
"""

from __future__ import annotations

from easeml_model.model import Model, load

__all__ = ["Model", "load"]
