"""How long each arm of a run takes on one slot, estimated from those of its trials that have been timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import replace
from statistics import fmean

from easeml_db.words.run import Run
from easeml_db.words.trial import Trial

# Every pilot asks for the mean: over all trials of a run of ten thousand it would take the coordinator a tenth of a
# second, and more trials would hardly change the mean.
MAX_TIMED = 32


class ArmTimes:
    """Timed trials by arm, a few of each, in their state before the first unit."""

    def __init__(self, run: Run, timed: Container[int]) -> None:
        self.renew(run, timed)

    def renew(self, run: Run, timed: Container[int]) -> None:
        """Renew the arms and their trials from the tables; `timed` holds the trials whose units have been timed."""
        self._arm_of, self._trials = run.arm_of, {trial.trial_id: trial for trial in run.trials}
        self._lives: dict[int, dict[int, Trial]] = {}  # by trial, by arm
        self._n_lives: dict[int, float] = dict(Counter(map(run.arm_of.__getitem__, run.arm_of.keys() & self._trials)))
        if run.search is not None:  # trials come and go
            self._n_lives |= {arm.arm_id: arm.n_epochs / run.search.max_epochs for arm in run.arms if arm.n_epochs}
        wanting = set(self._n_lives)  # arms
        for trial_id in self._trials:
            if not wanting:
                break
            if trial_id in timed and (arm_id := run.arm_of.get(trial_id)) in wanting:
                self.timed(trial_id)
                if arm_id is not None and len(self._lives[arm_id]) == MAX_TIMED:
                    wanting.discard(arm_id)

    def timed(self, trial_id: int) -> None:
        """Note that a unit of a trial has been timed."""
        arm_id, trial = self._arm_of.get(trial_id), self._trials.get(trial_id)
        if arm_id is not None and trial is not None:
            lives = self._lives.setdefault(arm_id, {})
            if len(lives) < MAX_TIMED:
                lives.setdefault(trial_id, replace(trial, n_steps_done=0, target_epochs=None))

    def seconds(self, remaining_seconds: Callable[[Trial], float]) -> dict[int, float]:
        """Return the seconds of each arm with a timed trial: the mean whole life of its timed trials, times all its
        trials.
        """
        timed = self._lives.items()
        return {arm: self._n_lives[arm] * fmean(map(remaining_seconds, lives.values())) for arm, lives in timed}
