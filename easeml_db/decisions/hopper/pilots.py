"""Pilots on idle slots: a few mini-batches of a trial that are timed and thrown away, over any partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from easeml_db.decisions.hopper.attempts import Attempts
from easeml_db.decisions.hopper.contract import Placement
from easeml_db.words.training_unit import TrainingUnit, pilot_of
from easeml_db.words.trial import Trial


def pilots_on(
    trials: Iterable[Trial], idle_slots: Sequence[int], placement: Placement, attempts: Attempts
) -> Iterator[tuple[TrainingUnit, int]]:
    """Give slots trials that want a pilot, over any partition that the slot can run; a lost one goes elsewhere."""
    free = {slot: [q for q in range(placement.n_partitions) if placement.can_run(slot, q)] for slot in idle_slots}
    able_slots = slots_for(range(placement.n_partitions), placement)
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


def slots_for(partitions: Iterable[int], placement: Placement) -> set[int | None]:
    """The slots in service that can run one of these partitions."""
    wanted = list(partitions)
    return {slot for slot in placement.segment_of if any(placement.can_run(slot, q) for q in wanted)}
