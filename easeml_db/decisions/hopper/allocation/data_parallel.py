"""Data-parallel: the trial with the lowest number has all slots, then the next; each trains as a gang on its slots.

A gang starts when all its slots are idle; until then they are held back. Trials whose architecture cannot train on
several slots hop on the slots that are left, and so does a run whose partitions are placed on segments of one server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from easeml_db.decisions.hopper.allocation.contract import Allocation, Choice, SlotOffer, Start
from easeml_db.decisions.hopper.allocation.hopping import Hopping, bracket_of
from easeml_db.decisions.hopper.schedulers.choice import SchedulerChoice
from easeml_db.decisions.hopper.schedulers.contract import Placement
from easeml_db.decisions.hopper.work.gangs import GangSlots, able_slots, gang_slots, gangs_to_start
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.words.training_unit import TrainingUnit
from easeml_db.words.trial import Trial


class DataParallel(Allocation):
    """Gangs for the trials that can, hopping for the others."""

    needs_gangs = True

    def __init__(self, work: RunWork) -> None:
        super().__init__(work)
        self._has_gangs = False  # as of the last choice
        self._hopping = Hopping(work, self._is_in_gangs, self.rank)

    def choose(self, offer: SlotOffer) -> Choice:
        """Return the gangs whose slots are all idle, hold back the slots of the others, and let the rest hop."""
        gangs = self._choose_gangs(offer)
        if self._has_gangs and all(map(self._is_in_gangs, self.work.trials)):
            return gangs
        others = self._hopping.choose(offer.without(gangs.held_slots))
        return Choice([*gangs.starts, *others.starts], gangs.held_slots)

    def slot_demand(self, placement: Placement, n_working: int) -> int:
        """Count a slot for each partition of each trial where they train in gangs."""
        if self._is_parallel(n_working):
            return min(len(placement.segment_of), len(self.work.trials) * placement.n_partitions)
        return super().slot_demand(placement, n_working)

    def rank(self, trial: Trial) -> int:
        """Return which trials that hop go first."""
        return bracket_of(trial)

    # When trials train in gangs

    def pays(self, n_trials: int, n_slots: int) -> bool:
        """Return whether that many remaining trials should train one after another, each on all slots."""
        return True

    def most_slots(self) -> int | None:
        """Return how many slots a trial gets at most; None: as many as it has partitions."""
        return None

    def is_undecided(self) -> bool:
        """Return whether pilots come first."""
        return bool(self.work.timing)

    def _is_parallel(self, n_slots: int) -> bool:
        run = self.work.run
        if run.holders is not None or not run.joint_architectures:
            return False
        return self.pays(len(self.work.trials) + self.work.n_to_come, n_slots)

    def _is_in_gangs(self, trial_id: int) -> bool:
        """Return whether a trial is started in gangs only."""
        return self._has_gangs and self.work.architecture(trial_id) in self.work.run.joint_architectures

    def _choose_gangs(self, offer: SlotOffer) -> Choice:
        has_gangs = not self.is_undecided() and self._is_parallel(offer.n_working)
        if has_gangs != self._has_gangs:
            self._has_gangs = has_gangs
            self._hopping.restart()
        if not has_gangs:
            return Choice()
        slots = offer.slots()
        slots_by_trial = self._gang_slots(offer, slots)
        idle_trials = [self.work.trials[trial_id] for trial_id in slots_by_trial if trial_id not in self.work.busy]
        gangs = gangs_to_start(idle_trials, slots_by_trial, self._idle_within_limit(offer, slots))
        held = frozenset(slot for trial_slots in slots_by_trial.values() for slot in trial_slots)
        return Choice([Start(gang.units, gang.slots) for gang in gangs], held)

    def _idle_within_limit(self, offer: SlotOffer, slots: Sequence[int]) -> Sequence[int]:
        """Return the idle slots; none where the tenant may not begin to work on all that its gangs would have."""
        n_needed = len(set(offer.idle).intersection(slots))
        return offer.idle if offer.n_allowed is None or n_needed <= offer.n_allowed else ()

    def share(self, trials: Iterable[Trial], slots: Sequence[int], offer: SlotOffer) -> GangSlots:
        """Share slots out among trials that train in gangs."""
        return gang_slots(trials, slots, self.most_slots())

    def _gang_slots(self, offer: SlotOffer, slots: Sequence[int]) -> GangSlots:
        """Share out slots; a trial whose gangs failed too often continues on one of them."""
        work = self.work
        joint = (trial for trial in work.trials.values() if self._is_in_gangs(trial.trial_id))
        shared = self.share(joint, slots, offer)
        return {trial_id: able_slots(trial_id, mine, work.attempts) for trial_id, mine in shared.items()}

    # What happens to the run

    def renewed(self) -> None:
        """React to a renewed reading of the run from the tables."""
        self._hopping.renewed()

    def trials_opened(self) -> None:
        """Reckon with the trials of one more arm."""
        self._hopping.trials_opened()

    def trial_idle(self, trial: Trial) -> None:
        """Count a trial as idle."""
        self._hopping.trial_idle(trial)

    def trial_gone(self, trial_id: int) -> None:
        """Start nothing of a trial any more."""
        self._hopping.trial_gone(trial_id)

    def recorded(self, units: Sequence[TrainingUnit], seconds: float) -> float | None:
        """Return how long a unit took; None for a gang, which does not show it."""
        return self._hopping.recorded(units, seconds)

    def take_scheduler_choice(self) -> SchedulerChoice | None:
        """Return the choice of a scheduler for the trials that hop."""
        return self._hopping.take_scheduler_choice()
