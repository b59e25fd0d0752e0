"""Dates and times of a row as clients write them: each is the moment that SQL reads there, or refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from easeml_plpy.server.value_types import shown

EXAMPLE = "a date or time such as '2030-12-31 18:00'"
DAY_SECONDS = 86_400
MICROSECONDS = 1_000_000
LAST_YEAR, LAST_YEAR_OF_DATES = 294_276, 5_874_897
"""Of the server's types. Its first years need no check: their moments are numbers as well."""
MOST_OFFSET_HOURS = 15
MOST_CHARACTERS = 100
_TIME = re.compile(
    r"(?P<year>[0-9]{4,7})(?P<day>-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<clock>[0-9]{2}(?::[0-9]{2}(?::[0-9]{2})?)?)(?P<fraction>(?<=:[0-9]{2}:[0-9]{2})\.[0-9]+)?)?"
    r"(?:Z|(?P<sign>[+-])(?P<hours>[0-9]{2})(?::?(?P<minutes>[0-5][0-9])(?::?(?P<seconds>[0-5][0-9]))?)?)?"
    r"(?P<era> BC)?"
)


def seconds_of(value: Any, sql_type: str) -> float:
    """Return seconds since 1970 of a date or time as SQL and JSON write it, or of a number of seconds; an offset counts
    if the type has one. Raises TypeError or ValueError for anything else.
    """
    if isinstance(value, str):
        return _seconds_of_text(value, sql_type)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise TypeError(f"no time: {type(value).__name__}")  # numpy would take its own times as numbers of whatever unit


def _seconds_of_text(text: str, sql_type: str) -> float:
    parts = _TIME.fullmatch(text) if len(text) < MOST_CHARACTERS else None
    if parts is None:
        raise ValueError(f"not a time: {shown(text)}")
    seconds = _days(parts, sql_type) * DAY_SECONDS + _clock_seconds(parts)
    if sql_type == "timestamptz":
        seconds -= _offset_seconds(parts)
    # integers, because their quotient is rounded once, as the server's is
    return (seconds * MICROSECONDS + round(float(parts["fraction"] or 0) * MICROSECONDS)) / MICROSECONDS


def _days(parts: re.Match[str], sql_type: str) -> int:
    """Return days since 1970, counted in days: numpy's microseconds overflow before the server's last year."""
    year = int(parts["year"])
    if not 0 < year <= (LAST_YEAR_OF_DATES if sql_type == "date" else LAST_YEAR):
        raise ValueError(f"no year of {sql_type}: {year}")
    if parts["era"]:
        year = 1 - year
    return int(np.datetime64(f"{year:05d}{parts['day']}" if year < 0 else f"{year:04d}{parts['day']}", "D").astype(int))


def _clock_seconds(parts: re.Match[str]) -> int:
    hours, minutes, seconds = [*map(int, (parts["clock"] or "0").split(":")), 0, 0][:3]
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"no time of a day: {parts['clock']}")
    return hours * 3600 + minutes * 60 + seconds


def _offset_seconds(parts: re.Match[str]) -> int:
    """Return how far a zone is ahead, given as +05, +0530, +05:30 or +05:30:12."""
    hours, minutes, seconds = (int(parts[name] or 0) for name in ("hours", "minutes", "seconds"))
    if hours > MOST_OFFSET_HOURS:
        raise ValueError(f"no offset of a zone: {hours} hours")
    offset = hours * 3600 + minutes * 60 + seconds
    return -offset if parts["sign"] == "-" else offset
