"""The open arms of a run, and the trials that may therefore run.

Values that every unit needs (the age of the run, which arms have ended) are kept by arm, because a scan of all trials
for each unit would be slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from easeml_db.words.run import Run
from easeml_db.words.trial import RUNNABLE, Trial


class OpenArms:
    """An arm is opened once and closed once all its trials are over. A trial without an arm needs no opening."""

    def __init__(self, run: Run) -> None:
        self._ended_searches: set[int] = set()
        self._n_trials: Counter[int | None] = Counter()  # open ones, by arm
        self._n_busy: Counter[int | None] = Counter()  # trials under way, by arm
        self._age: int | None = None
        self._take_over(run)

    def _take_over(self, run: Run) -> None:
        self._run = run
        self._opening = {arm.arm_id: arm.opening for arm in run.arms if arm.opening is not None}
        self._closed = {arm.arm_id for arm in run.arms if arm.is_closed}
        is_searched = run.search is not None
        self._searched = {arm.arm_id for arm in run.arms if is_searched} - self._closed - self._ended_searches
        self._to_check = set(self._opening)  # arms that may be over

    # Trials and arms

    def is_complete(self) -> bool:
        """Return whether every arm has been opened, and no procedure is still deciding."""
        return len(self._opening) == len(self._run.arms) and not self._searched

    def has_unopened(self) -> bool:
        """Return whether an arm is left to open."""
        return len(self._opening) < len(self._run.arms)

    def is_open(self, arm_id: int) -> bool:
        """Return whether an arm has been opened."""
        return arm_id in self._opening

    def is_fresh(self) -> bool:
        """Return whether no arm has been opened yet."""
        return not self._opening

    def n_to_come(self) -> int:
        """Count the trials of arms that are not open yet."""
        if not self.has_unopened():
            return 0
        opened = self._opening.keys() | {None}
        return sum(t.status in RUNNABLE and self._arm(t.trial_id) not in opened for t in self._run.trials)

    def age(self) -> int:
        """Return the number of the oldest opening that still has trials; 0 if there is none. Trials that wait for a
        decision count: a run is as old while it turns to a later arm, and will turn back.
        """
        if self._age is None:
            numbers = [self._opening.get(arm or 0, 0) for arm, count in self._n_trials.items() if count]
            searched = [self._opening[arm] for arm in self._searched if arm in self._opening]
            self._age = min([*numbers, *searched] if numbers else [0])
        return self._age

    def first_trials(self, arm_ids: Collection[int]) -> list[Trial]:
        """Return the first trial that is not over of each of these arms."""
        return [trials[0] for arm_id in arm_ids if (trials := self._trials_of(arm_id))]

    # What happens to them

    def renew(self, run: Run, busy: Iterable[int]) -> dict[int, Trial]:
        """Renew the arms from the tables; return the trials that are not over, of arms that are open or of none."""
        self._take_over(run)
        opened = self._opening.keys() | {None}
        trials = {t.trial_id: t for t in run.trials if t.status in RUNNABLE and self._arm(t.trial_id) in opened}
        self._n_trials = Counter(self._arm(trial_id) for trial_id in trials)
        self._n_busy = Counter(self._arm(trial_id) for trial_id in busy)
        self._age = None
        return trials

    def open(self, arm_id: int, opening: int) -> dict[int, Trial]:
        """Open an arm; return its trials."""
        self._opening[arm_id] = opening
        trials = {trial.trial_id: trial for trial in self._trials_of(arm_id)}
        self._n_trials[arm_id] = len(trials)
        self._to_check.add(arm_id)
        self._age = None
        return trials

    def trial_over(self, trial_id: int) -> None:
        """Count an open trial less."""
        arm_id = self._arm(trial_id)
        self._n_trials[arm_id] -= 1
        if not self._n_trials[arm_id]:
            self._age = None
            self._check_later(arm_id)

    def unit_begun(self, trial_id: int) -> None:
        """Count a trial more that is under way."""
        self._n_busy[self._arm(trial_id)] += 1

    def unit_over(self, trial_id: int) -> None:
        """Count a trial less that is under way."""
        arm_id = self._arm(trial_id)
        self._n_busy[arm_id] -= 1
        if not self._n_trials[arm_id]:
            self._check_later(arm_id)

    def end_search(self, arm_id: int) -> None:
        """Reckon with no further trial from the procedure inside an arm."""
        self._ended_searches.add(arm_id)
        self._searched.discard(arm_id)
        self._to_check.add(arm_id)
        self._age = None

    def close_ended(self) -> list[int]:
        """Close the open arms whose trials are all over and whose procedure has ended; return them."""
        if not self._to_check:
            return []
        over = [arm_id for arm_id in self._opening if arm_id in self._to_check and self._is_over(arm_id)]
        self._to_check.clear()
        self._closed |= set(over)
        return over

    def not_closed(self, arm_id: int) -> None:
        """Offer an arm for closing again: it could not be closed yet."""
        self._closed.discard(arm_id)
        self._to_check.add(arm_id)

    def _is_over(self, arm_id: int) -> bool:
        has_trials = self._n_trials[arm_id] or self._n_busy[arm_id]
        return not has_trials and arm_id not in self._closed and arm_id not in self._searched

    def _check_later(self, arm_id: int | None) -> None:
        if arm_id is not None:
            self._to_check.add(arm_id)

    def _trials_of(self, arm_id: int) -> list[Trial]:
        return [t for t in self._run.trials if t.status in RUNNABLE and self._arm(t.trial_id) == arm_id]

    def _arm(self, trial_id: int) -> int | None:
        return self._run.arm_of.get(trial_id)
