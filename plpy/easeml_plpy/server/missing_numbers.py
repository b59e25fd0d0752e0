"""Numbers of statistics that may be missing: a number that is not finite is stored as null, and null plus anything is
null.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


def finite(number: float) -> float | None:
    """Return the number as it is stored."""
    return number if math.isfinite(number) else None


def number(stored: float | None) -> float:
    """Return what is stored as a number: NaN for null."""
    return math.nan if stored is None else stored


def total(numbers: Iterable[float | None]) -> float | None:
    """Return the exact sum, so the order of parts does not matter; None when any of them is."""
    given = list(numbers)
    present = [value for value in given if value is not None]
    return math.fsum(present) if len(present) == len(given) else None
