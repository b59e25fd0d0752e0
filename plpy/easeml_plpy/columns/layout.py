"""The kinds of a row form's columns, so that an architecture can tell numbers from codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ColumnKind = Literal["number", "flag", "category", "token", "weight"]


@dataclass(frozen=True)
class FormColumn:
    """A column of a row form, and the input that it came from.

    number: any value, NaN where missing if the row form says so. flag: 1 where the input is missing, else 0. category:
    a code from 0 to `cardinality` - 1, and how the row form writes a missing one. token: the id of a word, below
    `cardinality`, or -1 for none; tokens of one input share their ids. weight: the weight of the token at the same
    place.

    `part` says which piece of the input it is, "" for the whole: a calendar part, or the flat position in an array.
    `cardinality` of a number counts the bins between its knots, in row forms that place numbers among knots.
    """

    kind: ColumnKind
    field: str
    part: str = ""
    cardinality: int = 0


Layout = tuple[FormColumn, ...]
