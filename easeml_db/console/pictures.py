"""Examples and answers as PNG, where their shape is that of a picture of bytes; learning curves as SVG.

A curve is the source of an image, in which a browser runs nothing, whatever names are in it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from easeml_db.report.charts import Frame, Measure, curve, curve_title
from easeml_db.report.datasets import ChartData
from easeml_db.report.picture import darkened, svg
from easeml_loaders.pictures import MODES, png_of

CURVE = Frame(width=460, is_interactive=False)


def is_picture(entry: Mapping[str, Any] | None) -> bool:
    """Return whether a column holds pictures: bytes of two sizes, or of three, of which the last counts channels."""
    if entry is None or entry["type"] != "bytea":
        return False
    shape = entry["shape"]
    return len(shape) == 2 or (len(shape) == 3 and shape[2] in MODES)


def example_png(entry: Mapping[str, Any], pixels: bytes) -> bytes:
    """Return the picture of a column's bytes."""
    return png_of(np.frombuffer(pixels, np.uint8).reshape(entry["shape"]))


def answer_source(entry: Mapping[str, Any] | None, output: Sequence[Any]) -> str | None:
    """Return an output tensor as the source of an image; None if it is not a picture."""
    if entry is None or not is_picture(entry):
        return None
    return _source("png", png_of(np.array(output, np.uint8)))


def curve_sources(data: ChartData) -> list[tuple[str, str, str]]:
    """Return (title, light, dark) of the report's learning curves; nothing where no epoch is measured."""
    if not data.datasets["curves"]["epoch"]:
        return []
    return [_curve(data, "metric"), _curve(data, "loss")]


def _curve(data: ChartData, field: Measure) -> tuple[str, str, str]:
    light = svg(curve(data, field, CURVE), data, ("curves", "trials"))
    dark = darkened(light)
    return curve_title(data, field), _source("svg+xml", light.encode()), _source("svg+xml", dark.encode())


def _source(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{b64encode(content).decode()}"
