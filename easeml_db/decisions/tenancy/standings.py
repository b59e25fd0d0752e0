"""What policies see of all runs: columns with an entry for each, in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
_NEW = {"can_open": False, "n_opened": 0.0, "sig": np.nan, "gap": 0.0, "best": 0.0, "score": -np.inf, "weight": 1.0}


def _floats() -> Floats:
    return np.empty(0)


@dataclass
class Standings:
    """Columns of shape (n,): `can_open` an arm now; arms opened so far; `sig`, `gap` and `best` as in `run_bandit`;
    `score` of the arm that the run would open; `weight` > 0."""

    can_open: Mask = field(default_factory=lambda: np.empty(0, dtype=bool))
    n_opened: Floats = field(default_factory=_floats)
    sig: Floats = field(default_factory=_floats)
    gap: Floats = field(default_factory=_floats)
    best: Floats = field(default_factory=_floats)
    score: Floats = field(default_factory=_floats)
    weight: Floats = field(default_factory=_floats)

    def grow(self) -> None:
        """Add a run at the end."""
        for name, value in _NEW.items():
            setattr(self, name, np.append(getattr(self, name), value))

    def drop(self, place: int) -> None:
        """Remove a run; those behind it move up."""
        for name in _NEW:
            setattr(self, name, np.delete(getattr(self, name), place))

    def first(self, mask: Mask) -> int:
        """Return the place of the first run of a mask that is not empty."""
        return int(np.argmax(mask))

    def largest(self, values: Floats, among: Mask) -> int:
        """Return the place of the run with the largest value, the first at a tie."""
        return int(np.argmax(np.where(among, values, -np.inf)))
