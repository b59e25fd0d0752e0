"""JSON from users, read within bounds, so that code that walks it afterwards stays fast.

A document holds at most MAX_VALUES values (numbers, words, lists and objects alike), MAX_DEPTH levels and numbers of
MAX_DIGITS digits. It is checked as a whole before any other code reads it.
"""

from __future__ import annotations

import json

from easeml_db.decisions.search_space.refusal import refusal, shown
from easeml_db.errors import InvalidArgument

MAX_CHARACTERS = 1_000_000
MAX_VALUES = 10_000
MAX_DEPTH = 8
MAX_DIGITS = 400  # those of the largest float, written out, are 309


def read_document(argument: str, text: str) -> object:
    """Parse a JSON text. Raises InvalidArgument if it is invalid or beyond the bounds."""
    if len(text) > MAX_CHARACTERS:
        raise _too_much(argument, f"at most {MAX_CHARACTERS} characters", str(len(text)))
    try:
        value: object = json.loads(text, parse_int=_bounded_integer)
    except (ValueError, RecursionError) as error:
        raise refusal(argument, expected="JSON", got=shown(text), hint=str(error)) from error
    _check_size(argument, value)
    return value


def _bounded_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits, expected at most {MAX_DIGITS}")
    return int(digits)


def _check_size(argument: str, value: object) -> None:
    """Walk level by level, and stop at the first value too many."""
    level, n_values = [value], 1
    for _ in range(MAX_DEPTH + 1):
        level = [part for whole in level for part in _parts(whole)]
        n_values += len(level)
        if n_values > MAX_VALUES:
            raise _too_much(argument, f"at most {MAX_VALUES} values", "more")
        if not level:
            return
    raise _too_much(argument, f"at most {MAX_DEPTH} levels", "more")


def _parts(whole: object) -> list[object]:
    if isinstance(whole, dict):
        return list(whole.values())
    return whole if isinstance(whole, list) else []


def _too_much(argument: str, expected: str, got: str) -> InvalidArgument:
    return refusal(argument, expected=expected, got=got, hint="Write a range instead of a long list of choices.")
