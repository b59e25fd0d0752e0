"""Names for the types of values that many modules share."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

Array: TypeAlias = npt.NDArray[Any]
"""An array whose element type is known only when the code runs, because a column's type decides it."""

Floats: TypeAlias = npt.NDArray[np.float32]

Told: TypeAlias = Mapping[str, Any]
"""A JSON object that one process tells another: an order, a step of a job, or what was found."""

Pause: TypeAlias = Callable[[], None]
"""What long work calls after each mini-batch, so that a cancel gets through."""

MOST_CHARACTERS = 80


def no_pause() -> None:
    """Let nothing through: for work of milliseconds."""


def shown(value: JSON) -> str:
    """Return a value in its writer's notation, for a message: JSON where Python's notation differs, shortened if it is
    long.
    """
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return _in_python(value)
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):  # what JSON cannot say: a date or a set that Python's users gave
        return _in_python(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 20]}...{text[-17:]}"


def _in_python(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # a number with more digits than Python writes
        return f"{type(value).__name__} of very many digits"
