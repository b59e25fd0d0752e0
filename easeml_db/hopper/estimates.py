"""How long a unit is expected to take, from the units observed so far.

The nearest mean counts: this trial's units of this kind, else its architecture's, else all units of this
kind, else 1 second. Trials of one architecture that have not run yet so get equal estimates, and the
scheduler's ties.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from easeml_db.errors import InvalidArgument
from easeml_db.training_unit import n_units_left
from easeml_db.trial import Trial

UNKNOWN_SECONDS = 1.0


@dataclass(frozen=True)
class ObservedUnit:
    """A finished unit; `kind` is train, validate or test."""

    trial_id: int
    architecture: str
    kind: str
    seconds: float


class UnitSeconds:
    """Means of unit times. The order of observations does not matter beyond rounding."""

    def __init__(self, observed: Iterable[ObservedUnit] = ()) -> None:
        self._sums: dict[Hashable, tuple[float, int]] = {}
        for unit in observed:
            self.observe(unit)

    def observe(self, unit: ObservedUnit) -> None:
        """Take one more finished unit into account."""
        if not (unit.seconds >= 0 and math.isfinite(unit.seconds)):
            raise InvalidArgument(f"seconds: expected a number of at least 0, got {unit.seconds}")
        for key in _keys(unit.trial_id, unit.architecture, unit.kind):
            total, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = (total + unit.seconds, count + 1)

    def expected(self, trial_id: int, architecture: str, kind: str) -> float:
        """Return the seconds that a unit of this trial is expected to take."""
        for key in _keys(trial_id, architecture, kind):
            if key in self._sums:
                total, count = self._sums[key]
                return total / count
        return UNKNOWN_SECONDS

    def remaining(self, trial: Trial, architecture: str) -> float:
        """Return the seconds of work that a trial still has, over all its epochs."""
        left = n_units_left(trial)
        return sum(count * self.expected(trial.trial_id, architecture, kind) for kind, count in left.items() if count)


def _keys(trial_id: int, architecture: str, kind: str) -> tuple[Hashable, ...]:
    """From near to far."""
    return ("trial", trial_id, kind), ("architecture", architecture, kind), ("all", kind)
