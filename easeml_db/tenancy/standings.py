"""What policies see of all tenants, and what they keep of each: columns with an entry for each, by arrival."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def _floats() -> Floats:
    return np.empty(0)


def _mask() -> Mask:
    return np.empty(0, dtype=bool)


NEWCOMER = {
    "can_play": False, "n_plays": 0.0, "sig": np.nan, "gap": -np.inf, "best": 0.0, "score": -np.inf, "weight": 1.0,
    "clock": 0.0, "was_candidate": False,
}  # fmt: skip


@dataclass
class Standings:
    """Columns of shape (n,): `can_play` now; plays begun; `sig`, `gap` and `best` as in `player`; `score` of the arm
    that the tenant would play; `weight` > 0. `n_decisions` were made before this one.

    `clock` (turns taken, in proportion to the weight) and `was_candidate` (at the last decision) are the policies' own.
    """

    can_play: Mask = field(default_factory=_mask)
    n_plays: Floats = field(default_factory=_floats)
    sig: Floats = field(default_factory=_floats)
    gap: Floats = field(default_factory=_floats)
    best: Floats = field(default_factory=_floats)
    score: Floats = field(default_factory=_floats)
    weight: Floats = field(default_factory=_floats)
    clock: Floats = field(default_factory=_floats)
    was_candidate: Mask = field(default_factory=_mask)
    n_decisions: int = 0

    def grow(self) -> None:
        """Add a tenant at the end."""
        for name, value in NEWCOMER.items():
            setattr(self, name, np.append(getattr(self, name), value))

    def keep(self, places: list[int]) -> None:
        """Keep these tenants only, in this order."""
        for column in fields(self):
            if column.name in NEWCOMER:
                setattr(self, column.name, getattr(self, column.name)[places])

    def first(self, mask: Mask) -> int:
        """The first tenant of a mask that is not empty."""
        return int(np.argmax(mask))

    def largest(self, values: Floats, among: Mask) -> int:
        """The tenant with the largest value, the first at a tie."""
        return int(np.argmax(np.where(among, values, -np.inf)))
