"""The water-filling formula (Fluid, algorithms 1 and 2, line 4): w_i = min(max(floor(h_i1 n / sum_j h_j1), 1/c), d)."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, fsum

from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.errors import InvalidArgument

ROUNDING = 1e-9  # n equal trials on n devices get one each, whatever their sum rounds to


def widths(seconds: Sequence[float], n_devices: int, profile: Profile) -> list[float]:
    """Return the width of each trial, in devices, from h_1 of each in seconds, shape (n_trials,). Raises
    InvalidArgument.
    """
    if n_devices < 0:
        raise InvalidArgument(f"n_devices: expected at least 0, got {n_devices}")
    total = fsum(seconds)
    shares = (floor(h_1 * n_devices / total + ROUNDING) for h_1 in seconds)
    return [min(max(float(whole), profile.least_width), float(profile.d)) for whole in shares]
