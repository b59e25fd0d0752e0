"""Hopping: every trial has one slot at a time, and a scheduler assigns idle trials to idle slots.

A trial that does whole rounds needs a slot that may run all partitions; otherwise it is scheduled like all others. If
slots hold only some partitions, such a trial waits for all of them at once and counts as work for each.

If the run's scheduler compares or plans, the run begins with pilots. Then the scheduler is made from the known times
and the slots in service. It is made again when either changes, unless the user named it and it can serve other slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from easeml_db.decisions.hopper.allocation.contract import Allocation, Choice, SlotOffer, Start
from easeml_db.decisions.hopper.schedulers.choice import PILOTED, Planning, SchedulerChoice, asked_scheduler
from easeml_db.decisions.hopper.schedulers.contract import Assignment, Cached, Candidate, Placement, Scheduler, lead_of
from easeml_db.decisions.hopper.work.gangs import whole_round
from easeml_db.decisions.hopper.work.pilots import PilotQueue
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.errors import InvalidArgument
from easeml_db.words.run import Run
from easeml_db.words.training_unit import next_unit, open_partitions, round_number
from easeml_db.words.trial import Trial


def bracket_of(trial: Trial) -> int:
    """Return the rank by which trials of the bracket that began first go first."""
    return trial.bracket


class Hopping(Allocation):
    """Serves the trials that no other allocation starts (`is_elsewhere`). Trials of a lower `rank` go first."""

    uses_gangs = False

    def __init__(
        self,
        work: RunWork,
        is_elsewhere: Callable[[int], bool] = lambda trial_id: False,
        rank: Callable[[Trial], int] = bracket_of,
    ) -> None:
        super().__init__(work)
        self._is_elsewhere, self._rank = is_elsewhere, rank
        self.pilots = PilotQueue(work, is_elsewhere)
        self._planning = Planning()
        self._placement: Placement | None = None
        self._scheduler: Scheduler | None = None
        self._restart_pilots()

    def choose(self, offer: SlotOffer) -> Choice:
        """Return pilots if times are missing, else units, one on each slot."""
        idle = offer.startable()
        if not idle:
            return Choice()
        if self._placement is not offer.placement:
            self._serve(offer.placement)
        if self.work.timing or (self._scheduler is None and self.pilots.are_wanted()):
            return Choice([Start((unit,), (slot,)) for unit, slot in self.pilots.on(idle, offer.placement)])
        return Choice([self._start_of(assignment) for assignment in self._assignments(idle, offer.cached)])

    def restart(self) -> None:
        """Make the scheduler again, of the kind that was chosen: other trials are to be served."""
        self._scheduler = None

    def planned_run(self) -> Run:
        """Return the run with the scheduler that it is to be served by."""
        return self.work.run

    # What happens to the run

    def renewed(self) -> None:
        """React to a renewed reading of the run from the tables."""
        self._scheduler = None
        self._restart_pilots()

    def trials_opened(self) -> None:
        """Choose a scheduler anew, for more trials."""
        self._forget_choice()
        self._restart_pilots()

    def trial_idle(self, trial: Trial) -> None:
        """Tell the scheduler that a trial is idle."""
        if self._scheduler is not None and trial.trial_id not in self.work.busy:
            self._put(self._scheduler, trial)

    def trial_gone(self, trial_id: int) -> None:
        """Start nothing of a trial any more."""
        if self._scheduler is not None:
            self._scheduler.take(trial_id)

    def take_scheduler_choice(self) -> SchedulerChoice | None:
        """Return the choice of a scheduler made since the last call, if any."""
        return self._planning.take_choice()

    # The scheduler

    def _serve(self, placement: Placement) -> None:
        """Serve other slots: keep the scheduler if the user named it and it can serve them."""
        self._placement = placement
        scheduler = self._scheduler
        if scheduler is None or not self._planning.is_as_asked(self.planned_run()) or not scheduler.serve(placement):
            self._forget_choice()

    def _restart_pilots(self) -> None:
        self.pilots.restart(is_needed=asked_scheduler(self.planned_run()) in PILOTED)

    def _forget_choice(self) -> None:
        self._scheduler = None
        self._planning.forget()

    def _scheduler_in_service(self) -> Scheduler:
        if self._scheduler is not None:
            return self._scheduler
        if self._placement is None:
            raise InvalidArgument("a run is planned for slots in service")
        work = self.work
        self._scheduler = self._planning.scheduler(self.planned_run(), work.trials, work.seconds, self._placement)
        for trial in work.trials.values():
            self.trial_idle(trial)
        return self._scheduler

    def _put(self, scheduler: Scheduler, trial: Trial) -> None:
        work = self.work
        if self._is_elsewhere(trial.trial_id):
            return
        # A trial that was not timed yet goes first: the longest one should not be found out last. Trials that come on
        # the way, from a procedure, must not go before others.
        is_estimated = work.run.search is not None or work.seconds.is_timed(trial.trial_id)
        remaining = work.remaining_seconds(trial) if is_estimated else math.inf
        partitions, rounds = open_partitions(trial), round_number(trial)
        if partitions and work.run.holders is not None and work.is_whole(trial.trial_id):
            partitions = tuple(range(trial.n_partitions))
        # Procedures share time out by themselves, by targets.
        is_limited = work.run.max_seconds is not None and work.run.search is None
        lead = lead_of(rounds // 2, is_limited=is_limited)
        number, rank = trial.trial_number, self._rank(trial)
        scheduler.put(Candidate(trial.trial_id, number, rounds, partitions, remaining, rank, lead))

    def _assignments(self, idle: Sequence[int], cached: Cached) -> list[Assignment]:
        if self.work.attempts or self._bound_to_all():
            return self._apart(idle, cached)
        return self._scheduler_in_service().choose(idle, cached)

    def _apart(self, idle: Sequence[int], cached: Cached) -> list[Assignment]:
        """Ask slot by slot. Keep from each slot the trials that failed there and could go elsewhere, and, if it holds
        only some partitions, those that need all.
        """
        scheduler, work = self._scheduler_in_service(), self.work
        chosen: dict[int, Assignment] = {}
        for slot in idle:
            waiting = [t for t in (*work.attempts, *self._bound_to_all()) if t not in chosen and t not in work.busy]
            withheld = [trial_id for trial_id in waiting if self._is_avoided(trial_id, slot)]
            for trial_id in withheld:
                scheduler.take(trial_id)
            chosen |= {assignment.trial_id: assignment for assignment in scheduler.choose([slot], cached)}
            for trial_id in withheld:
                self.trial_idle(work.trials[trial_id])
        return list(chosen.values())

    def _is_avoided(self, trial_id: int, slot: int) -> bool:
        """Return whether a slot cannot run a trial's next unit, or the trial failed there and another slot could."""
        trial = self.work.trials.get(trial_id)
        if self._placement is None or trial is None:
            return False
        is_whole = self.work.is_whole(trial_id)
        able = self._placement.slots_for_all() if is_whole else self._placement.slots_for(open_partitions(trial))
        return slot not in able or (self.work.attempts.avoided(trial_id) == slot and len(able) > 1)

    def _bound_to_all(self) -> list[int]:
        """Return the trials that need all partitions, where slots hold only some."""
        if self._placement is None or self._placement.holders is None:
            return []
        return [trial_id for trial_id in self.work.trials if self.work.is_whole(trial_id)]

    def _start_of(self, assignment: Assignment) -> Start:
        trial = self.work.trials[assignment.trial_id]
        if self.work.is_whole(trial.trial_id):
            every = whole_round(trial, assignment.slot_id)
            units = () if every is None else every.units
        else:
            unit = next_unit(trial, assignment.partition_number)
            units = () if unit is None else (unit,)
        if not units:
            raise InvalidArgument(f"trial {trial.trial_id} has no unit left")
        return Start(units, (assignment.slot_id,))
