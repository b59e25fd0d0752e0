"""Pilots on idle slots: a few mini-batches of a trial on any partition, timed and thrown away."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from easeml_db.decisions.hopper.schedulers.contract import Placement
from easeml_db.decisions.hopper.schedulers.registry import MAX_SIMULATED_UNITS
from easeml_db.decisions.hopper.work.attempts import Attempts
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.words.training_unit import TrainingUnit, pilot_of
from easeml_db.words.trial import Trial


class PilotQueue:
    """The trials of a run that need a pilot: first those that time their arms, then those that are to be planned and
    have not run yet, unless they are `exempt`.
    """

    def __init__(self, work: RunWork, is_exempt: Callable[[int], bool]) -> None:
        self._work, self._is_exempt = work, is_exempt
        self._queue: deque[int] = deque()

    def restart(self, *, is_needed: bool) -> None:
        """Queue all open trials where their times are needed, and not too many units are left to plan."""
        trials = self._work.trials
        n_units = sum(trial.n_partitions * trial.max_epochs for trial in trials.values()) if is_needed else 0
        self._queue = deque(trials) if is_needed and n_units <= MAX_SIMULATED_UNITS else deque()

    def are_wanted(self) -> bool:
        """Return whether pilots are wanted and not all are answered. A trial that has run a unit needs none."""
        while self._queue and not self._wants_one(self._queue[0]):
            self._queue.popleft()
        return bool(self._queue)

    def on(self, idle_slots: Sequence[int], placement: Placement) -> list[tuple[TrainingUnit, int]]:
        """Give idle slots to trials that want a pilot and are not under way."""
        work = self._work
        trial_ids = (t for t in work.timing or self._queue if t not in work.busy and self._wants_one(t))
        trials = (trial for trial_id in trial_ids if (trial := work.trial(trial_id)) is not None)
        return list(pilots_on(trials, idle_slots, placement, work.attempts))

    def _wants_one(self, trial_id: int) -> bool:
        trial = self._work.trial(trial_id)
        return trial is not None and not self._is_exempt(trial_id) and self._work.is_untimed(trial)


def pilots_on(
    trials: Iterable[Trial], idle_slots: Sequence[int], placement: Placement, attempts: Attempts
) -> Iterator[tuple[TrainingUnit, int]]:
    """Assign trials that need a pilot to slots, over any partition of the slot; a lost pilot goes elsewhere."""
    free = {slot: [q for q in range(placement.n_partitions) if placement.can_run(slot, q)] for slot in idle_slots}
    able_slots = placement.slots_for(range(placement.n_partitions))
    for trial in trials:
        able = [slot for slot, partitions in free.items() if partitions]
        if not able:
            return
        avoided = attempts.avoided(trial.trial_id)
        others = [slot for slot in able if slot != avoided]
        if others or not able_slots - {avoided}:
            slot = (others or able)[0]
            unit = pilot_of(trial, free.pop(slot)[0])
            if unit is not None:
                yield unit, slot
