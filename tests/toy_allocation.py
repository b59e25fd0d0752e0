"""A fifth allocation, as somebody would add it: the text of this file, and the line REGISTER in the registry."""

from easeml_db.decisions.hopper.allocation.contract import Allocation, Choice, Start
from easeml_db.words.training_unit import next_unit

NAME = "one_after_another"
REGISTER = f"""
from easeml_db.decisions.hopper.allocation.registry import ALLOCATIONS
ALLOCATIONS["{NAME}"] = OneAfterAnother
"""


class OneAfterAnother(Allocation):
    """The toy: a single trial at a time, the highest number first, on the slot after the one that it holds back."""

    def choose(self, offer):
        held = frozenset(sorted(offer.placement.segment_of)[:1])
        idle = [slot for slot in offer.startable() if slot not in held]
        if self.work.busy or not idle:
            return Choice((), held)
        trial = max(self.work.trials.values(), key=lambda each: each.trial_number)
        return Choice([Start((next_unit(trial),), (idle[0],))], held)

    def slot_demand(self, placement, n_working):
        return 1
