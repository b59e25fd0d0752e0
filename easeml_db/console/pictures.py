"""Examples and answers as PNG, where their shape is that of a picture of bytes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from easeml_loaders.pictures import MODES, png_of


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
    return "data:image/png;base64," + b64encode(png_of(np.array(output, np.uint8))).decode()
