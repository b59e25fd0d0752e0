"""The work of one run: its open trials, the slots that they are on, and the durations of their units."""

from __future__ import annotations

from collections.abc import Mapping

from easeml_db.decisions.hopper.schedulers.estimates import UnitSeconds
from easeml_db.decisions.hopper.work.attempts import Attempts
from easeml_db.words.run import Run
from easeml_db.words.trial import Trial


class RunWork:
    """The work of a run as its allocation sees it. Only the open run changes it.

    `trials` are those of open arms that are not over; `timing` holds a trial of each arm that is to be piloted before
    any arm is opened; `busy` gives a slot of every trial under way; `n_to_come` counts the trials of arms that are not
    open yet.
    """

    def __init__(self, run: Run, seconds: UnitSeconds, busy: Mapping[int, int] | None = None) -> None:
        self.run, self.seconds = run, seconds
        self.trials: dict[int, Trial] = {}
        self.timing: dict[int, Trial] = {}
        self.busy = dict(busy or {})
        self.attempts = Attempts()
        self.n_to_come = 0

    def trial(self, trial_id: int) -> Trial | None:
        """Return a trial that may get a unit or a pilot; None for any other."""
        return self.trials.get(trial_id) or self.timing.get(trial_id)

    def architecture(self, trial_id: int) -> str:
        """Return the architecture of a trial."""
        return self.run.architectures[trial_id]

    def is_whole(self, trial_id: int) -> bool:
        """Return whether a trial does a whole round in one unit, over all partitions."""
        return self.architecture(trial_id) in self.run.whole_architectures

    def remaining_seconds(self, trial: Trial) -> float:
        """Return the seconds of work that a trial still has."""
        return self.seconds.remaining(trial, self.architecture(trial.trial_id))

    def is_untimed(self, trial: Trial) -> bool:
        """Return whether nothing has shown yet how long the units of a trial take."""
        return trial.n_steps_done == 0 and not self.seconds.is_timed(trial.trial_id)
