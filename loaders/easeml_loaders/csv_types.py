"""Types of CSV columns: the form of their fields, and their values on the wire."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from easeml_loaders.binary_copy import numeric_bytes

EPOCH = "2000-01-01"
NO_NUMBERS = {"NaN", "nan", "NAN", "NaT"}
NULL_WORDS = frozenset(
    {"NA", "N/A", "#N/A", "<NA>", "na", "n/a", "NULL", "Null", "null", "None", "none", "?", "-", ".", *NO_NUMBERS}
)
"""Words of programs for a missing value: NULL in a column whose other fields are no texts."""
TRUE_WORDS = frozenset({"true", "t", "yes", "y", "on", "1"})


def _parse_whole(low: int, high: int, fields: Sequence[str]) -> NDArray[Any]:
    numbers = list(map(int, fields))
    if numbers and (min(numbers) < low or max(numbers) > high):
        raise ValueError("out of range")
    return np.array(numbers, np.int64)


def _parse_real(dtype: str, fields: Sequence[str]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        numbers = np.array(list(map(float, fields)), np.float64).astype(dtype)
    is_infinite = np.isinf(numbers)
    if is_infinite.any() and any("n" not in fields[i].lower() for i in np.flatnonzero(is_infinite).tolist()):
        raise ValueError("out of range")
    return numbers


def _parse_boolean(fields: Sequence[str]) -> NDArray[Any]:
    return np.fromiter((field.strip().lower() in TRUE_WORDS for field in fields), np.bool_, len(fields))


def _parse_times(dtype: str, microseconds: int, fields: Sequence[str]) -> NDArray[Any]:
    """Return days or microseconds since 2000-01-01, as the server counts them; an offset in time is subtracted."""
    parts = [_split_offset(field) for field in fields]
    counted: NDArray[np.int64] = np.array([moment for moment, _ in parts], dtype).astype(np.int64)
    offsets = np.array([seconds for _, seconds in parts], np.int64) * microseconds
    return counted - np.array([EPOCH], dtype).astype(np.int64) - offsets


def _split_offset(field: str) -> tuple[str, int]:
    """Return a moment without its offset, and the offset in seconds."""
    parts = OFFSET.fullmatch(field.strip().replace("/", "-"))
    if parts is None:
        raise ValueError("not a moment")
    if not parts["sign"]:
        return parts["moment"], 0
    seconds = int(parts["hours"]) * 3600 + int(parts["minutes"] or 0) * 60
    return parts["moment"], -seconds if parts["sign"] == "-" else seconds


def _parse_numeric(fields: Sequence[str]) -> list[bytes]:
    return [numeric_bytes(Decimal(field.strip())) for field in fields]


def _parse_text(fields: Sequence[str]) -> list[bytes]:
    return [field.encode() for field in fields]


@dataclass(frozen=True)
class FieldType:
    """The form of a type's fields and their conversion; `parse` raises ValueError beyond the type's range."""

    element: str
    inferred: re.Pattern[str] | None  # what a field must look like for the type to be guessed; None: never guessed
    declared: re.Pattern[str]  # what it may look like where the user names the type
    parse: Callable[[Sequence[str]], NDArray[Any] | list[bytes]]
    null_stand_in: str


DATE = r"[0-9]{4}(?:-[0-9]{2}-|/[0-9]{2}/)[0-9]{2}"  # the year first: other orders can be taken for one another
TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
ZONE = r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
OFFSET = re.compile(r"(?P<moment>.{10}[^Z+-]*)(?:Z|(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]{2})?)?")
WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
REAL = re.compile(r"\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf|infinity)\s*", re.IGNORECASE)
ANYTHING = re.compile(r".*", re.DOTALL)
CAREFUL_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
CAREFUL_REAL = re.compile(
    r"-?(?!0[0-9]|[0-9]{17,}$|0*\.?0*[1-9](?:\.?[0-9]){17,}$)"
    r"(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf|infinity)",
    re.IGNORECASE,
)
# Numbers for which double precision would lose digits; whole numbers of that many digits are codes.
CAREFUL_NUMERIC = re.compile(r"-?(?!0[0-9])(?:[0-9]{1,17}|[0-9]{1,1000}\.[0-9]{1,1000})")
NUMERIC = re.compile(r"\s*[+-]?(?:[0-9]{1,1000}\.?[0-9]{0,1000}|\.[0-9]{1,1000})\s*")
FIELD_TYPES = {
    kind.element: kind
    for kind in (  # in the order in which they are tried
        FieldType(
            "boolean",
            re.compile(r"true|false|t|f", re.IGNORECASE),
            re.compile(r"\s*(?:true|false|t|f|yes|no|y|n|on|off|1|0)\s*", re.IGNORECASE),
            _parse_boolean,
            "f",
        ),
        FieldType("bigint", CAREFUL_WHOLE, WHOLE, partial(_parse_whole, -(2**63), 2**63 - 1), "0"),
        FieldType("integer", None, WHOLE, partial(_parse_whole, -(2**31), 2**31 - 1), "0"),
        FieldType("smallint", None, WHOLE, partial(_parse_whole, -(2**15), 2**15 - 1), "0"),
        FieldType("double precision", CAREFUL_REAL, REAL, partial(_parse_real, "f8"), "0"),
        FieldType("real", None, REAL, partial(_parse_real, "f4"), "0"),
        FieldType("numeric", CAREFUL_NUMERIC, NUMERIC, _parse_numeric, "0"),
        *(
            FieldType(element, re.compile(shape), re.compile(rf"\s*{shape}\s*"), partial(_parse_times, *unit), EPOCH)
            for element, shape, unit in (
                ("date", DATE, ("M8[D]", 0)),
                ("timestamp without time zone", rf"{DATE}(?:[T ]{TIME})?", ("M8[us]", 1_000_000)),
                ("timestamp with time zone", rf"{DATE}[T ]{TIME}{ZONE}", ("M8[us]", 1_000_000)),
            )
        ),
        FieldType("text", ANYTHING, ANYTHING, _parse_text, ""),
    )
}
GUESSES = tuple(kind.element for kind in FIELD_TYPES.values() if kind.inferred is not None)
ALIASES = {
    "float": "double precision", "float8": "double precision", "float4": "real", "int": "integer", "int2": "smallint",
    "int4": "integer", "int8": "bigint", "bool": "boolean", "decimal": "numeric", "varchar": "text",
    "character varying": "text", "timestamp": "timestamp without time zone", "datetime": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}  # fmt: skip
