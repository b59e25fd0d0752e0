"""Calendar parts of moments: year, month, day, weekday (Monday is 0), hour, in UTC where the type has a time zone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from easeml_plpy.server.value_types import Array

PARTS = ("year", "month", "day", "weekday", "hour")
CYCLES = {"month": 12, "day": 31, "weekday": 7, "hour": 24}
"""How many values come round again, of the parts that do."""

_DAY, _HOUR = 86_400, 3_600
_EARLIEST, _LATEST = -62_135_596_800.0, 253_402_300_799.0  # the years 1 to 9999, in which the calendar is reckoned


def calendar_parts(seconds: Array, names: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the named parts of seconds since 1970 (n,), as (n, len(names)); NaN for missing moments."""
    is_known = np.isfinite(seconds)
    moments = np.clip(np.where(is_known, seconds, 0.0), _EARLIEST, _LATEST)
    days = np.floor(moments / _DAY)
    dates = days.astype(np.int64).astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    n_months = months.astype(np.int64)
    by_name = {
        "year": 1970 + n_months // 12,
        "month": 1 + n_months % 12,
        "day": 1 + (dates - months.astype("datetime64[D]")).astype(np.int64),
        "weekday": (days + 3) % 7,  # the first of January 1970 was a Thursday
        "hour": (moments - days * _DAY) // _HOUR,
    }
    parts = np.empty((len(seconds), len(names)))
    for k, name in enumerate(names):
        parts[:, k] = np.where(is_known, by_name[name], np.nan)
    return parts


def varying_parts(seconds: Array) -> tuple[str, ...]:
    """Return the parts that are not the same in all moments (n,)."""
    moments = seconds[np.isfinite(seconds)]
    if not len(moments):
        return ()
    parts = calendar_parts(moments, PARTS)
    return tuple(name for name, varies in zip(PARTS, np.ptp(parts, axis=0) > 0, strict=True) if varies)
