"""How long a unit is expected to take, from pilots and the units observed so far.

The most specific knowledge counts: the mean of this trial's units of this kind, else its pilot, else the mean of its
architecture's units, else of all units of this kind, else 1 second. So trials of one architecture that have not run yet
get equal estimates, and the scheduler breaks the ties.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Set
from typing import NamedTuple

from easeml_db.errors import InvalidArgument
from easeml_db.words.training_unit import n_units_left
from easeml_db.words.trial import Trial

UNKNOWN_SECONDS = 1.0

_Sum = tuple[float, int]  # of so many units


class ObservedUnit(NamedTuple):
    """A finished unit; `kind` is train, validate or test."""

    trial_id: int
    architecture: str
    kind: str
    seconds: float


class _KindSums:
    """Of one kind of units: sums of seconds, each with the number of units that it is of. `architectures` has that of
    all units under None."""

    def __init__(self, architectures: dict[str | None, _Sum]) -> None:
        self.trials: dict[int, _Sum] = {}
        self.pilots: dict[int, _Sum] = {}
        self.architectures = architectures

    def observe(self, unit: ObservedUnit) -> None:
        """Add a unit to the sums of its trial, of its architecture and of all."""
        seconds = _checked(unit.seconds)
        self.trials[unit.trial_id] = _plus(self.trials.get(unit.trial_id), seconds)
        for name in (unit.architecture, None):
            self.architectures[name] = _plus(self.architectures.get(name), seconds)

    def nearest(self, trial_id: int, architecture: str) -> _Sum | None:
        """Return the most specific value for a trial."""
        of_trial = self.trials.get(trial_id) or self.pilots.get(trial_id)
        return of_trial or self.architectures.get(architecture) or self.architectures.get(None)


class UnitSeconds:
    """Means of unit times. The order of observations does not matter beyond rounding.

    Runs share estimates of architectures. Estimates of trials belong to their run, and are dropped with it.
    """

    def __init__(self, observed: Iterable[ObservedUnit] = ()) -> None:
        self._architectures: defaultdict[str, dict[str | None, _Sum]] = defaultdict(dict)  # by kind
        self._kinds: dict[str, _KindSums] = {}
        for unit in observed:
            self.observe(unit)

    def of_run(self) -> UnitSeconds:
        """Return the same for the trials of one more run."""
        of_run = UnitSeconds()
        of_run._architectures = self._architectures
        return of_run

    def _of(self, kind: str) -> _KindSums:
        if kind not in self._kinds:
            self._kinds[kind] = _KindSums(self._architectures[kind])
        return self._kinds[kind]

    def observe(self, unit: ObservedUnit) -> None:
        """Take one more finished unit into account."""
        self._of(unit.kind).observe(unit)

    def pilot(self, trial_id: int, train_seconds: float, evaluate_seconds: float) -> None:
        """Take a trial's pilot into account: it counts until its first unit is observed."""
        self._of("train").pilots[trial_id] = _checked(train_seconds), 1
        for kind in ("validate", "test"):
            self._of(kind).pilots[trial_id] = _checked(evaluate_seconds), 1

    def is_timed(self, trial_id: int) -> bool:
        """Return whether a trial's own training units, or its pilot, have been timed."""
        train = self._of("train")
        return trial_id in train.trials or trial_id in train.pilots

    def timed_trials(self) -> Set[int]:
        """Return the trials of which `is_timed` is true."""
        train = self._of("train")
        return train.trials.keys() | train.pilots.keys()

    def expected(self, trial_id: int, architecture: str, kind: str) -> float:
        """Return the seconds that a unit of this trial is expected to take."""
        seconds = self.known(trial_id, architecture, kind)
        return UNKNOWN_SECONDS if seconds is None else seconds

    def known(self, trial_id: int, architecture: str, kind: str) -> float | None:
        """Return the same; None where no unit of this kind was ever timed."""
        total = self._of(kind).nearest(trial_id, architecture)
        return None if total is None else total[0] / total[1]

    def remaining(self, trial: Trial, architecture: str) -> float:
        """Return the seconds of work that a trial still has, over all its epochs."""
        left = n_units_left(trial)
        return sum([count * self.expected(trial.trial_id, architecture, kind) for kind, count in left.items() if count])


def _checked(seconds: float) -> float:
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise InvalidArgument(f"seconds: expected a number of at least 0, got {seconds}")
    return seconds


def _plus(total: _Sum | None, seconds: float) -> _Sum:
    return (seconds, 1) if total is None else (total[0] + seconds, total[1] + 1)
