"""Batched: hopping in which idle trials of one shape join a unit that starts, and one slot trains all of them together.

A unit that failed runs alone the next time, so that only the trial at fault fails. It does not use planning schedulers,
because a plan consists of single units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from easeml_db.decisions.hopper.allocation.contract import Choice, SlotOffer, Start
from easeml_db.decisions.hopper.allocation.hopping import Hopping
from easeml_db.decisions.hopper.schedulers.choice import PILOTED
from easeml_db.decisions.hopper.work.batches import BatchGains, batch_width
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.words.run import UNPLANNED, Run
from easeml_db.words.training_unit import PILOT, TrainingUnit, next_unit, open_partitions
from easeml_db.words.trial import Trial


class Batched(Hopping):
    """Hopping in batches."""

    uses_batches = True

    def __init__(self, work: RunWork) -> None:
        self._idle: dict[str, dict[int, None]] = {}  # trials by key, in the order in which they became idle
        self._n_open: dict[str, int] = {}  # idle or under way, by key, as of the last choice
        self._gains = BatchGains()
        super().__init__(work)

    def choose(self, offer: SlotOffer) -> Choice:
        """Return the starts of hopping, each unit with those that join it."""
        alone = super().choose(offer)
        keys = {key for start in alone.starts if (key := self._key(start.unit.trial_id)) is not None}
        busy = self.work.busy
        self._n_open = {key: len(self._idle.get(key, ())) + sum(self._key(t) == key for t in busy) for key in keys}
        for start in alone.starts:
            self._forget(start.unit.trial_id)
        return Choice([self._joined(start, offer) for start in alone.starts], alone.held_slots)

    def planned_run(self) -> Run:
        """Return the run with a scheduler that needs no plan."""
        run = self.work.run
        return replace(run, scheduler=UNPLANNED) if run.scheduler in PILOTED else run

    # Which trials join which

    def _joined(self, start: Start, offer: SlotOffer) -> Start:
        """Return a start with the units of idle trials that can go along."""
        unit, (slot,) = start.unit, start.slots
        width = 1 if len(start.units) > 1 or unit.kind == PILOT else self._width(unit, offer)
        units = list(start.units)
        for trial in self._companions(unit) if width > 1 else ():
            if len(units) == width:
                break
            other = self._unit_beside(trial, unit, slot, offer)
            if other is not None:
                units.append(other)
        for other in units[1:]:
            self._forget(other.trial_id)
            if self._scheduler is not None:
                self._scheduler.take(other.trial_id)
        return Start(tuple(units), start.slots)

    def _width(self, unit: TrainingUnit, offer: SlotOffer) -> int:
        """Return how many trials to batch."""
        work, key = self.work, self._key(unit.trial_id)
        if key is None or unit.trial_id in work.attempts or not self._gains.pays(key):
            return 1
        n_slots = len(offer.placement.segment_of)
        if offer.n_allowed is not None:
            n_slots = min(n_slots, offer.n_allowed + len(set(work.busy.values())))
        seconds = work.seconds.known(unit.trial_id, work.architecture(unit.trial_id), unit.kind)
        if seconds is not None and unit.kind == "train":  # the first of a session decodes rows, too
            seconds = min(seconds, self._gains.alone_seconds(key))
        return batch_width(self._n_open[key], n_slots, seconds)

    def _companions(self, unit: TrainingUnit) -> Iterator[Trial]:
        """Yield the idle trials of a unit's shape that have not failed."""
        for trial_id in tuple(self._idle.get(self._key(unit.trial_id) or "", ())):
            trial = self.work.trials.get(trial_id)
            if trial is not None and trial_id not in self.work.busy and trial_id not in self.work.attempts:
                yield trial

    def _unit_beside(self, trial: Trial, unit: TrainingUnit, slot: int, offer: SlotOffer) -> TrainingUnit | None:
        """Return a trial's next unit, over the same partition if allowed; None if it is of another kind, or over
        partitions that the slot does not hold.
        """
        able = [q for q in open_partitions(trial) if offer.placement.can_run(slot, q)]
        if not able:
            return None
        beside = next_unit(trial, unit.partition_number if unit.partition_number in able else able[0])
        return beside if beside is not None and beside.kind == unit.kind else None

    def _key(self, trial_id: int) -> str | None:
        return self.work.run.batch_keys.get(trial_id)

    # What happens to the run

    def trial_idle(self, trial: Trial) -> None:
        """Count a trial as idle."""
        super().trial_idle(trial)
        key = self._key(trial.trial_id)
        if key is not None and trial.trial_id not in self.work.busy:
            self._idle.setdefault(key, {})[trial.trial_id] = None

    def trial_gone(self, trial_id: int) -> None:
        """Start nothing of a trial any more."""
        super().trial_gone(trial_id)
        self._forget(trial_id)

    def recorded(self, units: Sequence[TrainingUnit], seconds: float) -> float | None:
        """Return how long one of the units took."""
        key, n_members = self._key(units[0].trial_id), len({unit.trial_id for unit in units})
        if key is not None and units[0].kind == "train":
            self._gains.observe(key, n_members, seconds)
        return seconds / n_members if n_members > 1 else super().recorded(units, seconds)

    def _forget(self, trial_id: int) -> None:
        self._idle.get(self._key(trial_id) or "", {}).pop(trial_id, None)
