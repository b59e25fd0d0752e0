"""What policies see of all tenants: columns with an entry for each, in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
_NEW = {"can_play": False, "n_plays": 0.0, "sig": np.nan, "gap": 0.0, "best": 0.0, "score": -np.inf, "weight": 1.0}


def _floats() -> Floats:
    return np.empty(0)


def _mask() -> Mask:
    return np.empty(0, dtype=bool)


@dataclass
class Standings:
    """Columns of shape (n,): `can_play` now; plays begun; `sig`, `gap` and `best` as in `player`; `score` of the arm
    that the tenant would play; `weight` > 0."""

    can_play: Mask = field(default_factory=_mask)
    n_plays: Floats = field(default_factory=_floats)
    sig: Floats = field(default_factory=_floats)
    gap: Floats = field(default_factory=_floats)
    best: Floats = field(default_factory=_floats)
    score: Floats = field(default_factory=_floats)
    weight: Floats = field(default_factory=_floats)

    def grow(self) -> None:
        """Add a tenant at the end."""
        for name, value in _NEW.items():
            setattr(self, name, np.append(getattr(self, name), value))

    def drop(self, place: int) -> None:
        """Remove a tenant; those behind it move up."""
        for name in _NEW:
            setattr(self, name, np.delete(getattr(self, name), place))

    def first(self, mask: Mask) -> int:
        """The first tenant of a mask that is not empty."""
        return int(np.argmax(mask))

    def largest(self, values: Floats, among: Mask) -> int:
        """The tenant with the largest value, the first at a tie."""
        return int(np.argmax(np.where(among, values, -np.inf)))
