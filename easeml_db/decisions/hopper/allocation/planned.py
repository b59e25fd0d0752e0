"""Planned: the run trains on the slots that its plan reserves, each trial of a stage on as many as the plan says.

Slots come and go between stages; the coordinator sees to that. With one slot for each trial, trials hop over all slots
of the run, and keep them at work; with more, each trains as a gang, on one instance where it fits into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from easeml_db.decisions.hopper.allocation.contract import SlotOffer
from easeml_db.decisions.hopper.allocation.data_parallel import DataParallel
from easeml_db.decisions.hopper.work.gang_places import GangPlaces
from easeml_db.decisions.hopper.work.gangs import GangSlots
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.words.trial import Trial


class Planned(DataParallel):
    """Hopping or gangs, as wide as the plan says."""

    follows_plan = True
    needs_gangs = False  # a plan may give each trial one slot

    def __init__(self, work: RunWork) -> None:
        super().__init__(work)
        self._width, self._has_stages = 1, False
        self._places = GangPlaces()
        self.has_reserved_slots = True

    def follow(self, width: int, *, has_reserved_slots: bool, has_stages: bool = False) -> bool:
        """Give each trial as many slots as the plan says, the run's own or shared ones; return whether that is new."""
        is_new = (width, has_reserved_slots, has_stages) != (self._width, self.has_reserved_slots, self._has_stages)
        self._width, self.has_reserved_slots, self._has_stages = width, has_reserved_slots, has_stages
        return is_new

    def rank(self, trial: Trial) -> int:
        """Let the stage under way end first. Some trials continue before its last ones are validated, but until then
        the set that continues is not final, and no slots are released.
        """
        most = trial.max_epochs + 1
        return trial.bracket * most + trial.due_epochs if self._has_stages else trial.bracket

    def pays(self, n_trials: int, n_slots: int) -> bool:
        """Return whether the plan gives a trial several slots."""
        return self._width > 1

    def most_slots(self) -> int:
        """Return how many slots a trial gets at most."""
        return self._width

    def share(self, trials: Iterable[Trial], slots: Sequence[int], offer: SlotOffer) -> GangSlots:
        """Place the gangs on the run's instances."""
        instances = {slot: offer.instances[slot] for slot in slots if slot in offer.instances}
        if len(instances) < len(slots):  # shared slots belong to no instance
            return super().share(trials, slots, offer)
        return self._places.share(trials, instances, self._width)
