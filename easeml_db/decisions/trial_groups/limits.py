"""How far packing and scaling are worthwhile, from measurements of a few iterations (Fluid, section 4.2.2).

T^p    seconds per iteration of p trials packed on one device
O^p    1 - ((p-1)/p) avg(T^p) / avg(T^(p-1)): share by which the p-th trial shortens the average trial
O_th   least O^p that is worthwhile, in (0, 1); the paper prints none. Packing for free has O^p = 1/p, a
       slowdown in proportion to p has 0
s_w    times as fast as on one device, on w devices
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from statistics import fmean

from easeml_db.errors import InvalidArgument

THRESHOLD = 0.1


def packing_benefit(p: int, seconds: Sequence[float], seconds_before: Sequence[float]) -> float:
    """Return O^p, from T^p and T^(p-1)."""
    return 1 - (p - 1) / p * fmean(seconds) / fmean(seconds_before)


def packing_limit(
    iteration_seconds: Sequence[Sequence[float]],
    *,
    threshold: float = THRESHOLD,
    trial_bytes: int | None = None,
    device_bytes: int | None = None,
) -> int:
    """Return c: the largest p so that every O^q, q = 2 to p, is above the threshold and p trials fit into the memory.

    `iteration_seconds[p - 1]` is T^p, from p = 1 without gaps. Where the overhead that T^c shows is too large for c
    (alpha < c/(c-1), section 4.2.2), c is the next smaller one. Raises InvalidArgument, also where not even one fits.
    """
    if not 0 < threshold < 1:
        raise InvalidArgument(f"threshold: expected more than 0 and less than 1, got {threshold:g}")
    _check_times(iteration_seconds)
    limit = 1
    for p in range(2, len(iteration_seconds) + 1):
        # O^q must exceed O_th for every q up to c: a larger p that does again does not count.
        if packing_benefit(p, iteration_seconds[p - 1], iteration_seconds[p - 2]) <= threshold:
            break
        limit = p
    most = min(limit, memory_limit(trial_bytes, device_bytes) or limit)
    return max(c for c in range(1, most + 1) if c == 1 or packing_overhead(iteration_seconds, c) < c / (c - 1))


def memory_limit(trial_bytes: int | None, device_bytes: int | None) -> int | None:
    """Count the trials that fit into a device's memory; None where either is not known. Raises InvalidArgument."""
    if trial_bytes is None or device_bytes is None:
        return None
    if trial_bytes < 1:
        raise InvalidArgument(f"trial_bytes: expected at least 1, got {trial_bytes}")
    if trial_bytes > device_bytes:
        raise InvalidArgument(f"a trial of {trial_bytes} bytes does not fit into a device of {device_bytes} bytes")
    return device_bytes // trial_bytes


def packing_overhead(iteration_seconds: Sequence[Sequence[float]], c: int) -> float:
    """Return alpha: the mean factor, at least 1, by which each trial up to c slows others. Raises InvalidArgument."""
    _check_times(iteration_seconds)
    if not 1 <= c <= len(iteration_seconds):
        raise InvalidArgument(f"c: expected 1 to {len(iteration_seconds)} as measured, got {c}")
    if c == 1:
        return 1.0
    # From avg(T^c) / avg(T^1) = alpha^(c-1). Below 1 it is noise: packing speeds no trial up.
    return float(max(1.0, (fmean(iteration_seconds[c - 1]) / fmean(iteration_seconds[0])) ** (1 / (c - 1))))


def scaling_limit(speedups: Sequence[float]) -> int:
    """Return d: the largest w up to which every further device makes a trial faster, by enough for beta < 1 + 1/d.

    `speedups[w - 1]` is s_w, from w = 1 without gaps. Raises InvalidArgument.
    """
    _check_speedups(speedups)
    grows = [here > before for before, here in pairwise(speedups)]
    limit = grows.index(False) + 1 if False in grows else len(speedups)
    return max(d for d in range(1, limit + 1) if d == 1 or scaling_overhead(speedups, d) < 1 + 1 / d)


def scaling_overhead(speedups: Sequence[float], d: int) -> float:
    """Return beta: from s_d = d / beta^(d-1), at least 1. Raises InvalidArgument."""
    _check_speedups(speedups)
    if not 1 <= d <= len(speedups):
        raise InvalidArgument(f"d: expected 1 to {len(speedups)} as measured, got {d}")
    return float(max(1.0, (d / speedups[d - 1]) ** (1 / (d - 1)))) if d > 1 else 1.0


def _check_times(iteration_seconds: Sequence[Sequence[float]]) -> None:
    if not iteration_seconds or not all(iteration_seconds):
        raise InvalidArgument("iteration_seconds: expected times of 1, 2, ... packed trials, got none for some")
    if not all(isfinite(seconds) and seconds > 0 for times in iteration_seconds for seconds in times):
        raise InvalidArgument("iteration_seconds: expected times above 0")


def _check_speedups(speedups: Sequence[float]) -> None:
    if not speedups or not all(isfinite(speedup) and speedup > 0 for speedup in speedups):
        raise InvalidArgument(f"speedups: expected at least one, each above 0, got {list(speedups)}")
