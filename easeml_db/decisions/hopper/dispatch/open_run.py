"""One open run: its work, its open arms, and the allocation that decides what starts.

A trial is idle or in one unit. The run reports events to its allocation, and itself keeps the state that every run
needs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from easeml_db.decisions.hopper.allocation.contract import Choice, SlotOffer
from easeml_db.decisions.hopper.allocation.registry import create_allocation
from easeml_db.decisions.hopper.schedulers.contract import Placement
from easeml_db.decisions.hopper.schedulers.estimates import ObservedUnit, UnitSeconds
from easeml_db.decisions.hopper.work.arm_times import ArmTimes
from easeml_db.decisions.hopper.work.batches import by_trial
from easeml_db.decisions.hopper.work.open_arms import OpenArms
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.decisions.trial_groups.measuring import Sample
from easeml_db.words.run import Run
from easeml_db.words.training_unit import TrainingUnit, after, is_at_target
from easeml_db.words.trial import Trial

MOST_RESERVED = 0.1  # of a time limit, for the end of the run
N_ANSWERS = 10  # rounds of answers: those of an ensemble's candidates, and tests


class OpenRun:
    """The open trials of one run, as long as its units are started."""

    def __init__(self, run: Run, seconds: UnitSeconds, busy: Mapping[int, int] | None = None) -> None:
        self.is_over = False
        self.deadline_seconds = math.inf  # by when a run with max_seconds has ended, too
        self.is_aside = False  # for a while nothing is started, and other runs have its slots
        self.arms = OpenArms(run)
        self.work = RunWork(run, seconds, busy)
        self.work.trials = self.arms.renew(run, self.work.busy)
        self.work.n_to_come = self.arms.n_to_come()
        self.allocation = create_allocation(self.work)
        for trial in run.trials:
            if trial.pilot_train_seconds is not None and trial.pilot_evaluate_seconds is not None:
                seconds.pilot(trial.trial_id, trial.pilot_train_seconds, trial.pilot_evaluate_seconds)
        self._arm_times = ArmTimes(run, seconds.timed_trials())

    # What it is and wants

    @property
    def run(self) -> Run:
        """The run as last read from the tables."""
        return self.work.run

    @property
    def run_id(self) -> int:
        """The run's number."""
        return self.work.run.run_id

    def is_done(self) -> bool:
        """Return whether nothing is under way or left to do; an unopened arm counts as left to do."""
        return not self.work.busy and (self.is_over or (not self.work.trials and self.arms.is_complete()))

    def has_work(self) -> bool:
        """Return whether trials run, may run, or need a pilot."""
        return bool(self.work.trials or self.work.timing or self.work.busy)

    def wants_slots(self) -> bool:
        """Return whether something could start if there were a shared slot: a trial, a pilot, or an arm."""
        if self.is_over or self.is_aside or self.allocation.has_reserved_slots:
            return False
        work = self.work
        return self.arms.has_unopened() or any(trial_id not in work.busy for trial_id in (*work.trials, *work.timing))

    def slot_demand(self, placement: Placement, n_working: int) -> int:
        """Count the slots in service that the trials of open arms could have at once."""
        return 0 if self.is_over or self.is_aside else self.allocation.slot_demand(placement, n_working)

    def is_saturated(self, placement: Placement) -> bool:
        """Return whether another arm would find no slot: bound partitions have fewer slots than trials are open."""
        if placement.holders is None:
            return False
        return len(self.work.trials) >= len(placement.slots_for(range(placement.n_partitions)))

    def is_timed_for_its_first_arm(self) -> bool:
        """Return whether a pilot is under way after which the run is to be served for the first time."""
        return self.arms.is_fresh() and any(trial_id in self.work.busy for trial_id in self.work.timing)

    def arm_seconds(self) -> dict[int, float]:
        """Return the seconds of each arm on one slot, for its whole life, if one of its trials has been timed."""
        return self._arm_times.seconds(self.work.remaining_seconds)

    # What happens to it

    def renew(self, run: Run) -> None:
        """Renew the run from the tables. Failed attempts at a unit that is still due stay counted."""
        work = self.work
        before, work.run = work.trials | work.timing, run
        work.trials = self.arms.renew(run, work.busy)
        self._arm_times.renew(run, work.seconds.timed_trials())
        work.n_to_come = self.arms.n_to_come()
        for trial_id in work.attempts:
            earlier, now = before.get(trial_id), work.trial(trial_id)
            if earlier is None or now is None or earlier.n_steps_done != now.n_steps_done:
                work.attempts.forget(trial_id)
        self.allocation.renewed()

    def open_arm(self, arm_id: int, opening: int) -> None:
        """Let an arm's trials run from now on."""
        self.work.trials |= self.arms.open(arm_id, opening)
        self.work.n_to_come = self.arms.n_to_come()
        self.allocation.trials_opened()

    def time_arms(self, arm_ids: Collection[int]) -> None:
        """Request a pilot of one trial of each of these arms before any arm is opened, to learn what the arms cost."""
        firsts = self.arms.first_trials(arm_ids)
        self.work.timing = {trial.trial_id: trial for trial in firsts if self.work.is_untimed(trial)}

    def begin(self, now_seconds: float) -> bool:
        """Return whether this is the first unit of a queued run; from now on the run counts as running."""
        run = self.work.run
        if run.status != "queued":
            return False
        started = now_seconds if run.started_seconds is None else run.started_seconds
        self.work.run = replace(run, status="running", started_seconds=started)
        return True

    def is_spent(self, now_seconds: float) -> bool:
        """Return whether the run's time is up, except for the test of its best trial, while units are still started."""
        limit, started = self.run.max_seconds, self.run.started_seconds
        if self.is_over or limit is None or started is None:
            return False
        limit = min(limit, self.deadline_seconds - started)
        if now_seconds < started + limit * (1 - MOST_RESERVED):
            return False
        return now_seconds >= started + limit - min(self._ending_seconds(), limit * MOST_RESERVED)

    def _ending_seconds(self) -> float:
        """Return the expected seconds of the end of the run: a test of one of its trials and, if a search may end with
        an ensemble, the answers of all candidates, the last unit begun, and the retraining of one trial.
        """
        work, trials = self.work, self.work.trials.values()

        def unit_seconds(trial: Trial, kind: str) -> float:
            return work.seconds.known(trial.trial_id, work.architecture(trial.trial_id), kind) or 0.0

        tests = max((trial.n_partitions * unit_seconds(trial, "validate") for trial in trials), default=0.0)
        units = max((unit_seconds(trial, "train") for trial in trials), default=0.0)
        again = max((trial.n_steps_done * unit_seconds(trial, "train") for trial in trials), default=0.0)
        return N_ANSWERS * tests + units + again if self.run.search is not None else tests

    def end_budget(self) -> None:
        """Start no more units; those under way run to their end."""
        self.is_over = True

    # Units

    def choose(self, offer: SlotOffer) -> Choice:
        """Return what to start now; its trials count as under way from now on."""
        if self.is_aside:
            return Choice()
        if self.is_over or not (self.work.trials or self.work.timing):
            return Choice((), self.allocation.held_slots())
        choice = self.allocation.choose(offer)
        for start in choice.starts:
            for trial_id in dict.fromkeys([unit.trial_id for unit in start.units]):
                self.work.busy[trial_id] = start.slots[0]
                self.arms.unit_begun(trial_id)
        return choice

    def answered(self, trial_id: int) -> None:
        """Count a trial's unit as over; the caller then reports its result."""
        if self.work.busy.pop(trial_id, None) is not None:
            self.arms.unit_over(trial_id)

    def recorded(self, units: Sequence[TrainingUnit], seconds: float, failed: Collection[int] = ()) -> None:
        """Note that units are recorded, those of a gang or batch together, except those of `failed` trials."""
        alone_seconds = self.allocation.recorded(units, seconds)
        for trial_id, trial_units in by_trial(units):
            if trial_id not in failed:
                self._advance(trial_id, trial_units, alone_seconds)

    def _advance(self, trial_id: int, units: Sequence[TrainingUnit], alone_seconds: float | None) -> None:
        """Count the units of a trial as done; `alone_seconds`: the duration of one of them, if known."""
        work, kind = self.work, units[0].kind
        work.attempts.forget(trial_id)
        if alone_seconds is not None:
            work.seconds.observe(ObservedUnit(trial_id, work.architecture(trial_id), kind, alone_seconds))
            if kind == "train":
                self._arm_times.timed(trial_id)
        trial = work.trials.get(trial_id)
        if trial is None:
            return
        for unit in units:
            trial = after(trial, unit)
        if is_at_target(trial):
            self.drop(trial_id)
        else:
            work.trials[trial_id] = trial
            self.allocation.trial_idle(trial)

    def piloted(
        self, trial_id: int, train_seconds: float, evaluate_seconds: float, sample: Sample | None = None
    ) -> None:
        """Note the expected duration of a trial's units, and with `sample` what the pilot measured."""
        if self.allocation.piloted(trial_id, train_seconds, sample):
            self.work.attempts.forget(trial_id)
            self.work.timing.pop(trial_id, None)
            self.work.seconds.pilot(trial_id, train_seconds, evaluate_seconds)
            self._arm_times.timed(trial_id)

    def requeue(self, trial_id: int, slot_id: int, *, charge_attempt: bool) -> None:
        """Requeue a trial whose unit failed, preferably on another slot."""
        self.allocation.unit_lost(trial_id)
        if self.work.trial(trial_id) is None:
            return
        if charge_attempt:
            self.work.attempts.failed(trial_id, slot_id)
        if trial_id in self.work.trials:
            self.allocation.trial_idle(self.work.trials[trial_id])

    def drop(self, trial_id: int) -> None:
        """Start nothing of a trial any more."""
        work = self.work
        if work.trials.pop(trial_id, None) is not None:
            self.arms.trial_over(trial_id)
        work.timing.pop(trial_id, None)
        work.attempts.forget(trial_id)
        self.allocation.trial_gone(trial_id)
