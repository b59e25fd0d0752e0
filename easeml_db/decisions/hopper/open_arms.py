"""Which arms of a run are open, and which of its trials may run for that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from statistics import fmean

from easeml_db.words.run import Run
from easeml_db.words.trial import Trial

OPEN = frozenset({"waiting", "running"})  # a trial that is paused has no unit to run


class OpenArms:
    """An arm is opened once and closed once all its trials are over. A trial without an arm needs no opening."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._opening = {arm.arm_id: arm.opening for arm in run.arms if arm.opening is not None}
        self._closed = {arm.arm_id for arm in run.arms if arm.is_closed}
        self._searched = set[int]() if run.search is None else {arm.arm_id for arm in run.arms} - self._closed

    def is_complete(self) -> bool:
        """Say whether every arm has been opened, and no procedure goes on."""
        return len(self._opening) == len(self._run.arms) and not self._searched

    def n_to_come(self) -> int:
        """Count the trials of arms that are not open yet."""
        opened = self._opening.keys() | {None}
        return sum(t.state in OPEN and self._arm(t.trial_id) not in opened for t in self._run.trials)

    def is_fresh(self) -> bool:
        """Say whether no arm has been opened yet."""
        return not self._opening

    def trials(self) -> dict[int, Trial]:
        """Trials that are not over, of arms that are open or of none, as the tables last said."""
        opened = self._opening.keys() | {None}
        return {t.trial_id: t for t in self._run.trials if t.state in OPEN and self._arm(t.trial_id) in opened}

    def open(self, arm_id: int, opening: int) -> dict[int, Trial]:
        """Open an arm; return its trials."""
        self._opening[arm_id] = opening
        return {trial.trial_id: trial for trial in self._trials_of(arm_id)}

    def age(self, trial_ids: Iterable[int]) -> int:
        """Return the number of the oldest opening among these trials' arms."""
        return min((self._opening.get(self._arm(trial_id) or 0, 0) for trial_id in trial_ids), default=0)

    def end_searches(self, arm_ids: Iterable[int]) -> None:
        """Take in that the procedures inside these arms will start and continue nothing any more."""
        self._searched -= set(arm_ids)

    def close_all_but(self, trial_ids: Iterable[int]) -> list[int]:
        """Close the open arms that have none of these trials, and no procedure that goes on; return them."""
        running = {self._arm(trial_id) for trial_id in trial_ids} | self._searched
        over = [arm_id for arm_id in self._opening if arm_id not in self._closed and arm_id not in running]
        self._closed |= set(over)
        return over

    def not_closed(self, arm_id: int) -> None:
        """Take back that an arm is closed."""
        self._closed.discard(arm_id)

    def first_trials(self, arm_ids: Collection[int]) -> list[Trial]:
        """Return the first trial that is not over of each of these arms."""
        return [trials[0] for arm_id in arm_ids if (trials := self._trials_of(arm_id))]

    def totals(self, seconds: Mapping[int, float]) -> dict[int, float]:
        """Return what each arm takes, from what whole lives of some of its trials take: the mean of those, for all."""
        timed: dict[int, list[float]] = {}
        n_lives: dict[int, float] = {}
        for trial in self._run.trials:
            arm_id = self._run.arm_of.get(trial.trial_id)
            if arm_id is None:
                continue
            n_lives[arm_id] = n_lives.get(arm_id, 0.0) + 1.0
            if trial.trial_id in seconds:
                timed.setdefault(arm_id, []).append(seconds[trial.trial_id])
        if self._run.search is not None:  # trials come and go
            n_lives |= {a.arm_id: a.n_epochs / self._run.search.max_epochs for a in self._run.arms if a.n_epochs}
        return {arm_id: n_lives[arm_id] * fmean(known) for arm_id, known in timed.items()}

    def _trials_of(self, arm_id: int) -> list[Trial]:
        return [t for t in self._run.trials if t.state in OPEN and self._arm(t.trial_id) == arm_id]

    def _arm(self, trial_id: int) -> int | None:
        return self._run.arm_of.get(trial_id)
