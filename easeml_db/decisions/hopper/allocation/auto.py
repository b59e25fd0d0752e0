"""Auto: hopping while trials fill the slots, gangs for the last ones (Cerebro, VLDB 2020, section 3).

With fewer trials than workers, hopping leaves workers idle. So trials train in gangs once at most half as many trials
are left as there are slots at work, unless the run's own gangs turned out slower than hopping on as many slots as there
are trials.
"""

from __future__ import annotations

from collections.abc import Sequence

from easeml_db.decisions.hopper.allocation.data_parallel import DataParallel
from easeml_db.decisions.hopper.work.gangs import Scaling
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.words.training_unit import TrainingUnit


class Auto(DataParallel):
    """Data-parallel training where that pays."""

    needs_gangs = False

    def __init__(self, work: RunWork) -> None:
        super().__init__(work)
        self._scaling = Scaling()

    def pays(self, n_trials: int, n_slots: int) -> bool:
        """Return whether gangs do more than hopping would."""
        return gangs_pay(n_trials, n_slots) and gangs_pay(n_trials, n_slots, self._speedup())

    def is_undecided(self) -> bool:
        """Return whether pilots come first, to find out what hopping would achieve."""
        return super().is_undecided() or self._hopping.pilots.are_wanted()

    def recorded(self, units: Sequence[TrainingUnit], seconds: float) -> float | None:
        """Remember how long gangs train."""
        is_gang = len(units) > 1 and not self.work.is_whole(units[0].trial_id)
        if is_gang and units[0].kind == "train":
            self._scaling.observe(self.work.architecture(units[0].trial_id), len(units), seconds)
        return super().recorded(units, seconds)

    def _speedup(self) -> float | None:
        """Return how much gangs of the open trials do in the time of a unit, for the architecture that gains least."""
        speedups = []
        for trial_id in self.work.trials:
            architecture = self.work.architecture(trial_id)
            unit_seconds = self.work.seconds.known(trial_id, architecture, "train")
            if unit_seconds is not None:
                speedups.append(self._scaling.speedup(architecture, unit_seconds))
        return min((speedup for speedup in speedups if speedup is not None), default=None)


def gangs_pay(n_trials: int, n_slots: int, speedup: float | None = None) -> bool:
    """Return whether the `n_trials` that are left do more as gangs on `n_slots`.

    `speedup` is how much all slots together do in the time of one (None: not known yet); hopping does as much as there
    are trials.
    """
    return 2 * n_trials <= n_slots and (speedup is None or speedup > n_trials)
