"""What runs next, as a value that is told what happened: the state of model hopper parallelism without any I/O.

It is a cache of the tables: rebuilt from them at any time, and wrong about nothing that matters, since the unit
itself refuses a step that is not due. Runs are served by age: a later run fills the slots that older ones leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from easeml_db.hopper.contract import Placement
from easeml_db.hopper.estimates import UnitSeconds
from easeml_db.hopper.open_run import OpenRun, Plan
from easeml_db.run import Run
from easeml_db.topology import Slot
from easeml_db.training_unit import TrainingUnit


@dataclass(frozen=True)
class Dispatch:
    """Run this unit of this run on this slot now, for the `attempt`-th time."""

    unit: TrainingUnit
    run_seed: int
    slot_id: int
    attempt: int


class Dispatcher:
    """Open runs, idle slots and units under way. A trial is in at most one unit, a slot runs at most one."""

    def __init__(self) -> None:
        self._runs: dict[int, OpenRun] = {}
        self._busy: dict[int, TrainingUnit] = {}  # by slot
        self._segments: dict[int, int] = {}  # segment by slot that may get units
        self._cached: dict[int, dict[int, set[int]]] = {}  # partitions by run, by slot with a session
        self._idle: set[int] = set()
        self._placements: dict[int, Placement] = {}  # by run; forgotten when slots or runs change
        self._seconds = UnitSeconds()

    # Slots

    def keep_slots(self, slots: Iterable[Slot]) -> list[Slot]:
        """Return the slots that need a session: active ones, and draining ones until their unit is answered. Only
        active ones get units, once their session is ready."""
        kept = [s for s in slots if s.state == "active" or (s.state == "draining" and s.slot_id in self._busy)]
        self._segments = {slot.slot_id: slot.segment_id for slot in kept if slot.state == "active"}
        for slot_id in set(self._cached) - {slot.slot_id for slot in kept}:
            self.slot_gone(slot_id)
        self._placements.clear()
        return kept

    def slot_ready(self, slot_id: int) -> None:
        """Take in that a slot's session is open; it has nothing cached."""
        self._cached[slot_id] = {}
        self._placements.clear()
        if slot_id not in self._busy:
            self._idle.add(slot_id)

    def slot_gone(self, slot_id: int) -> None:
        """Take in that a slot's session is gone; its unit, if any, is under way until it is answered."""
        self._idle.discard(slot_id)
        self._cached.pop(slot_id, None)
        self._placements.clear()

    def is_active(self, slot_id: int) -> bool:
        """Say whether a slot may get units."""
        return slot_id in self._segments

    def slots_of(self, run_id: int) -> list[int]:
        """Return the slots that are busy with a run."""
        return [slot_id for slot_id, unit in self._busy.items() if unit.run_id == run_id]

    # Runs

    def put_run(self, run: Run) -> None:
        """Add a run, or renew what is known of it."""
        self._placements.pop(run.run_id, None)
        if run.run_id in self._runs:
            self._runs[run.run_id].renew(run)
        else:
            busy = {unit.trial_id: slot_id for slot_id, unit in self._busy.items() if unit.run_id == run.run_id}
            self._runs[run.run_id] = OpenRun(run, self._seconds, busy)

    def begin_run(self, run_id: int, now_seconds: float) -> bool:
        """Say whether this is the first unit of a queued run; from now on the run counts as running."""
        return self._runs[run_id].begin(now_seconds)

    def drop_run(self, run_id: int) -> None:
        """Forget a run: nothing of it starts any more."""
        self._runs.pop(run_id, None)
        self._placements.pop(run_id, None)

    def open_runs(self) -> list[Run]:
        """Return the runs that are known to be open."""
        return [open_run.run for open_run in self._runs.values()]

    def is_known(self, run_id: int) -> bool:
        """Say whether a run is open here."""
        return run_id in self._runs

    def end_budget(self, run_id: int) -> None:
        """Start nothing of this run any more; what is under way goes on to its end."""
        self._runs[run_id].end_budget()

    def is_done(self, run_id: int) -> bool:
        """Say whether nothing of a run is under way or left to do."""
        return not self.slots_of(run_id) and self._runs[run_id].is_done()

    def new_plans(self) -> list[Plan]:
        """Return the plans made since the last call."""
        plans = [open_run.new_plan for open_run in self._runs.values() if open_run.new_plan is not None]
        for open_run in self._runs.values():
            open_run.new_plan = None
        return plans

    # Units

    def next_units(self) -> list[Dispatch]:
        """Fill the idle slots, oldest run first."""
        chosen: list[Dispatch] = []
        for run_id in sorted(self._runs):
            idle = sorted(self._idle & self._segments.keys())
            if not idle:
                break
            chosen += self._next_units_of(self._runs[run_id], idle)
        return chosen

    def _next_units_of(self, open_run: OpenRun, idle: list[int]) -> list[Dispatch]:
        run = open_run.run
        cached = {slot: self._cached[slot].get(run.run_id, ()) for slot in idle}
        dispatches = []
        for unit, slot_id in open_run.choose(idle, self._placement_of(run), cached):
            self._idle.discard(slot_id)
            self._busy[slot_id] = unit
            self._cached[slot_id].setdefault(unit.run_id, set()).add(unit.partition_number)
            dispatches.append(Dispatch(unit, run.seed, slot_id, open_run.attempt(unit.trial_id)))
        return dispatches

    def _placement_of(self, run: Run) -> Placement:
        if run.run_id not in self._placements:
            in_service = {slot: segment for slot, segment in self._segments.items() if slot in self._cached}
            self._placements[run.run_id] = Placement(run.trials[0].n_partitions, in_service, run.holders)
        return self._placements[run.run_id]

    def recorded(self, slot_id: int, seconds: float) -> None:
        """Take in that the slot's unit is recorded."""
        unit = self._answered(slot_id)
        if unit.run_id in self._runs:
            self._runs[unit.run_id].recorded(unit, seconds)

    def piloted(self, slot_id: int, train_seconds: float, evaluate_seconds: float) -> None:
        """Take in what the slot's pilot has found out."""
        unit = self._answered(slot_id)
        if unit.run_id in self._runs:
            self._runs[unit.run_id].piloted(unit.trial_id, train_seconds, evaluate_seconds)

    def lost(self, slot_id: int) -> None:
        """Take in that the slot's unit came to nothing with its session; its trial is offered again."""
        self.refused(slot_id)
        self.slot_gone(slot_id)

    def refused(self, slot_id: int, *, is_counted: bool = True) -> None:
        """Take in that the slot's unit came to nothing; its trial is offered again."""
        unit = self._answered(slot_id)
        if unit.run_id in self._runs:
            self._runs[unit.run_id].came_to_nothing(unit.trial_id, slot_id, is_counted=is_counted)

    def n_attempts(self, run_id: int, trial_id: int) -> int:
        """Return how often the trial's next unit came to nothing; 0 for a trial that is not open."""
        return self._runs[run_id].n_attempts(trial_id) if run_id in self._runs else 0

    def failed(self, slot_id: int) -> None:
        """Take in that the slot's unit ended its trial."""
        unit = self._answered(slot_id)
        self.drop_trial(unit.run_id, unit.trial_id)

    def drop_trial(self, run_id: int, trial_id: int) -> None:
        """Start nothing of a trial any more."""
        if run_id in self._runs:
            self._runs[run_id].drop(trial_id)

    def _answered(self, slot_id: int) -> TrainingUnit:
        unit = self._busy.pop(slot_id)
        if slot_id in self._cached:
            self._idle.add(slot_id)
        if unit.run_id in self._runs:
            self._runs[unit.run_id].answered(unit.trial_id)
        return unit
