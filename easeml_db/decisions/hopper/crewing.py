"""Which trials of a run are trained in gangs now, and on which slots each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from easeml_db.decisions.hopper.attempts import Attempts
from easeml_db.decisions.hopper.estimates import UnitSeconds
from easeml_db.decisions.hopper.gangs import MAX_GANG_ATTEMPTS, Crews, Scaling, data_parallel_crews, is_data_parallel
from easeml_db.words.run import Run
from easeml_db.words.trial import Trial


class Crewing:
    """Keeps what the run's gangs have shown, and whether its trials were started in gangs at the last choice."""

    def __init__(self, seconds: UnitSeconds) -> None:
        self.has_crews = False
        self.scaling = Scaling()
        self._seconds = seconds

    def is_parallel(self, run: Run, trial_ids: Iterable[int], n_trials: int, n_slots: int) -> bool:
        """Say whether trials have several slots at once, as far as their architecture can; `n_trials` counts those of
        arms that are still to come, too."""
        if run.holders is not None or not run.joint_architectures:
            return False
        speedup = self._speedup(run, trial_ids) if run.allocation == "auto" else None
        return is_data_parallel(run.allocation, n_trials, n_slots, speedup)

    def is_in_gangs(self, run: Run, trial_id: int) -> bool:
        """Say whether a trial is started in gangs only."""
        return self.has_crews and run.architectures[trial_id] in run.joint_architectures

    def crews_on(self, run: Run, trials: Iterable[Trial], slots: Sequence[int], attempts: Attempts) -> Crews:
        """Share slots out; a trial whose gangs came to nothing too often goes on with one of them."""
        crews = data_parallel_crews((trial for trial in trials if self.is_in_gangs(run, trial.trial_id)), slots)
        return {trial_id: able(trial_id, crew, attempts) for trial_id, crew in crews.items()}

    def _speedup(self, run: Run, trial_ids: Iterable[int]) -> float | None:
        """Return what gangs of these trials do in the time of a unit, by the least able architecture."""
        found = []
        for trial_id in trial_ids:
            architecture = run.architectures[trial_id]
            unit_seconds = self._seconds.known(trial_id, architecture, "train")
            if unit_seconds is not None:
                found.append(self.scaling.speedup(architecture, unit_seconds))
        return min((each for each in found if each is not None), default=None)


def able(trial_id: int, slots: Sequence[int], attempts: Attempts) -> tuple[int, ...]:
    """Return the slots for a trial's next unit: one, where its gangs came to nothing too often."""
    is_alone = attempts.count(trial_id) >= MAX_GANG_ATTEMPTS
    return attempts.another_of(trial_id, slots) if is_alone else tuple(slots)
