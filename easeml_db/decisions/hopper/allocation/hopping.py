"""Hopping: every trial has one slot at a time, and a scheduler says which idle trial goes to which idle slot.

Where the run's scheduler compares or plans, the run begins with pilots. Then the scheduler is made, on the times known
and the slots in service. It is made again when either changes, unless it was
asked for by name and can serve other slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from easeml_db.decisions.hopper.allocation.contract import Allocation, Choice, SlotOffer, Start
from easeml_db.decisions.hopper.contract import Assignment, Cached, Candidate, Placement, Scheduler
from easeml_db.decisions.hopper.pilots import PilotQueue
from easeml_db.decisions.hopper.planning import PILOTED, Planning, SchedulerChoice, asked_scheduler
from easeml_db.decisions.hopper.run_work import RunWork
from easeml_db.errors import InvalidArgument
from easeml_db.words.training_unit import next_unit, open_partitions, round_number
from easeml_db.words.trial import Trial


def _never(trial_id: int) -> bool:
    return False


class Hopping(Allocation):
    """Serves the trials that `is_elsewhere` does not name: those are started by another allocation."""

    uses_gangs = False

    def __init__(self, work: RunWork, is_elsewhere: Callable[[int], bool] = _never) -> None:
        super().__init__(work)
        self._is_elsewhere = is_elsewhere
        self.pilots = PilotQueue(work, is_elsewhere)
        self._planning = Planning()
        self._placement: Placement | None = None
        self._scheduler: Scheduler | None = None
        self._restart_pilots()

    def choose(self, offer: SlotOffer) -> Choice:
        """Return pilots where times are missing, else units, one on each slot."""
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

    # What happens to the run

    def renewed(self) -> None:
        """Look again at all that the tables say of the run."""
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
        """Serve other slots, with the scheduler at hand where it can and was asked for."""
        self._placement = placement
        scheduler = self._scheduler
        if scheduler is None or not self._planning.is_as_asked(self.work.run) or not scheduler.serve(placement):
            self._forget_choice()

    def _restart_pilots(self) -> None:
        self.pilots.restart(is_needed=asked_scheduler(self.work.run) in PILOTED)

    def _forget_choice(self) -> None:
        self._scheduler = None
        self._planning.forget()

    def _scheduler_in_service(self) -> Scheduler:
        if self._scheduler is not None:
            return self._scheduler
        if self._placement is None:
            raise InvalidArgument("a run is planned for slots in service")
        work = self.work
        self._scheduler = self._planning.scheduler(work.run, work.trials, work.seconds, self._placement)
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
        scheduler.put(Candidate(trial.trial_id, trial.trial_number, rounds, partitions, remaining, trial.bracket))

    def _assignments(self, idle: Sequence[int], cached: Cached) -> list[Assignment]:
        if self.work.attempts:
            return self._apart(idle, cached)
        return self._scheduler_in_service().choose(idle, cached)

    def _apart(self, idle: Sequence[int], cached: Cached) -> list[Assignment]:
        """Ask slot by slot, and keep from each the trials that failed there and could go elsewhere."""
        scheduler, work = self._scheduler_in_service(), self.work
        chosen: dict[int, Assignment] = {}
        for slot in idle:
            waiting = [t for t in work.attempts if t not in chosen and t not in work.busy]
            withheld = [trial_id for trial_id in waiting if self._is_avoided(trial_id, slot)]
            for trial_id in withheld:
                scheduler.take(trial_id)
            chosen |= {assignment.trial_id: assignment for assignment in scheduler.choose([slot], cached)}
            for trial_id in withheld:
                self.trial_idle(work.trials[trial_id])
        return list(chosen.values())

    def _is_avoided(self, trial_id: int, slot: int) -> bool:
        """Say whether a trial failed on this slot and another one could run its next unit."""
        if self.work.attempts.avoided(trial_id) != slot or self._placement is None:
            return False
        others = [other for other in self._placement.slots if other != slot]
        partitions = open_partitions(self.work.trials[trial_id])
        return any(self._placement.can_run(other, q) for other in others for q in partitions)

    def _start_of(self, assignment: Assignment) -> Start:
        unit = next_unit(self.work.trials[assignment.trial_id], assignment.partition_number)
        if unit is None:
            raise InvalidArgument(f"trial {assignment.trial_id} has no unit left")
        return Start((unit,), (assignment.slot_id,))
