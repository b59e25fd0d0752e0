"""The JSON of a row. Where a category is a number within it, numbers keep the digits that they are written with."""

from __future__ import annotations

import json
from typing import Any


class WrittenNumber(float):
    """A number that Python writes otherwise than it stands in the JSON, such as 1.50."""

    __slots__ = ("text",)
    text: str


def _number(text: str) -> float:
    number = float(text)
    if repr(number) == text:
        return number
    written = WrittenNumber(number)
    written.text = text
    return written


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


_PLAIN = json.JSONDecoder(parse_constant=_refuse_constant)
"""Made once: json.loads would make one for each row."""
_KEEPING_DIGITS = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_number)
"""Takes half a microsecond more for each number."""
MOST_KEPT_CHARACTERS = 4 << 20
"""Of a row whose numbers keep their digits: longer ones would take more than the second that nothing can interrupt."""


def decoded(text: str, *, keeps_digits: bool) -> Any:
    """Return the value of a JSON text. Raises RecursionError or ValueError."""
    decoder = _KEEPING_DIGITS if keeps_digits and len(text) <= MOST_KEPT_CHARACTERS else _PLAIN
    return decoder.decode(text)
