"""How long a unit is expected to take, from pilots and the units observed so far.

The nearest knowledge counts: the mean of this trial's units of this kind, else its pilot, else the mean of its
architecture's, else of all units of this kind, else 1 second. Trials of one architecture that have not run yet so
get equal estimates, and the scheduler's ties.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from easeml_db.errors import InvalidArgument
from easeml_db.words.training_unit import n_units_left
from easeml_db.words.trial import Trial

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
        seconds = _checked(unit.seconds)
        for key in _observed_keys(unit.trial_id, unit.architecture, unit.kind):
            total, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = (total + seconds, count + 1)

    def pilot(self, trial_id: int, train_seconds: float, evaluate_seconds: float) -> None:
        """Take a trial's pilot into account: it counts until its first unit is observed."""
        self._sums[_pilot_key(trial_id, "train")] = (_checked(train_seconds), 1)
        for kind in ("validate", "test"):
            self._sums[_pilot_key(trial_id, kind)] = (_checked(evaluate_seconds), 1)

    def is_timed(self, trial_id: int) -> bool:
        """Say whether a trial's own training units, or its pilot, have been timed."""
        return _trial_key(trial_id, "train") in self._sums or _pilot_key(trial_id, "train") in self._sums

    def expected(self, trial_id: int, architecture: str, kind: str) -> float:
        """Return the seconds that a unit of this trial is expected to take."""
        known = self.known(trial_id, architecture, kind)
        return UNKNOWN_SECONDS if known is None else known

    def known(self, trial_id: int, architecture: str, kind: str) -> float | None:
        """Return the same; None where no unit of this kind was ever timed."""
        sums = self._sums
        known = (
            sums.get(_trial_key(trial_id, kind))
            or sums.get(_pilot_key(trial_id, kind))
            or sums.get(_architecture_key(architecture, kind))
            or sums.get(_kind_key(kind))
        )
        return None if known is None else known[0] / known[1]

    def remaining(self, trial: Trial, architecture: str) -> float:
        """Return the seconds of work that a trial still has, over all its epochs."""
        left = n_units_left(trial)
        return sum([count * self.expected(trial.trial_id, architecture, kind) for kind, count in left.items() if count])


def _checked(seconds: float) -> float:
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise InvalidArgument(f"seconds: expected a number of at least 0, got {seconds}")
    return seconds


def _observed_keys(trial_id: int, architecture: str, kind: str) -> tuple[Hashable, ...]:
    """From near to far."""
    return _trial_key(trial_id, kind), _architecture_key(architecture, kind), _kind_key(kind)


def _trial_key(trial_id: int, kind: str) -> Hashable:
    return "trial", trial_id, kind


def _pilot_key(trial_id: int, kind: str) -> Hashable:
    return "pilot", trial_id, kind


def _architecture_key(architecture: str, kind: str) -> Hashable:
    return "architecture", architecture, kind


def _kind_key(kind: str) -> Hashable:
    return "all", kind
