"""What runs next, as a value that is told what happened: the state of model hopper parallelism without any I/O.

It is a cache of the tables: rebuilt from them at any time, and wrong about nothing that matters, since the unit
itself refuses a step that is not due.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from easeml_db.hopper.estimates import ObservedUnit, UnitSeconds
from easeml_db.hopper.longest_remaining import Board, Candidate
from easeml_db.run import Run
from easeml_db.training_unit import TrainingUnit, next_unit
from easeml_db.trial import Trial

OPEN = frozenset({"waiting", "running"})


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
        self._runs: dict[int, Run] = {}
        self._trials: dict[int, Trial] = {}
        self._busy: dict[int, TrainingUnit] = {}  # by slot
        self._idle: set[int] = set()
        self._attempts: dict[int, int] = {}  # failed attempts at a trial's next unit
        self._seconds = UnitSeconds()
        self._timed: set[int] = set()  # trials with an observed unit
        self._cached: dict[int, set[tuple[int, int]]] = {}
        self._over: set[int] = set()
        self._board = Board(1)

    # Slots

    def slot_ready(self, slot_id: int) -> None:
        """Take a slot into service; its session has nothing cached."""
        self._cached[slot_id] = set()
        self._idle.add(slot_id)
        self._rebuild_board()

    def slot_gone(self, slot_id: int) -> None:
        """Take a slot out of service; its unit, if any, is under way until it is answered."""
        self._idle.discard(slot_id)
        self._cached.pop(slot_id, None)
        self._rebuild_board()

    def keep_slots(self, slot_ids: Iterable[int]) -> None:
        """Take all other slots out of service."""
        for slot_id in set(self._cached) - set(slot_ids):
            self.slot_gone(slot_id)

    def slots_of(self, run_id: int) -> list[int]:
        """Return the slots that are busy with a run."""
        return [slot_id for slot_id, unit in self._busy.items() if unit.run_id == run_id]

    # Runs

    def put_run(self, run: Run) -> None:
        """Add a run, or renew what is known of it. Failed attempts at a unit that is still due stay counted."""
        attempts = {trial.trial_id: self._attempts.get(trial.trial_id, 0) for trial in run.trials}
        before = {trial.trial_id: self._trials.get(trial.trial_id) for trial in run.trials}
        self.drop_run(run.run_id)
        self._runs[run.run_id] = run
        for trial in run.trials:
            if trial.state in OPEN:
                self._trials[trial.trial_id] = trial
                known = before[trial.trial_id]
                if attempts[trial.trial_id] and known and known.n_steps_done == trial.n_steps_done:
                    self._attempts[trial.trial_id] = attempts[trial.trial_id]
        self._rebuild_board()

    def begin_run(self, run_id: int, now_seconds: float) -> bool:
        """Say whether this is the first unit of a queued run; from now on the run counts as running."""
        run = self._runs[run_id]
        if run.state != "queued":
            return False
        started = now_seconds if run.started_seconds is None else run.started_seconds
        self._runs[run_id] = replace(run, state="running", started_seconds=started)
        return True

    def drop_run(self, run_id: int) -> None:
        """Forget a run: nothing of it starts any more."""
        run = self._runs.pop(run_id, None)
        self._over.discard(run_id)
        for trial in run.trials if run else ():
            self.drop_trial(trial.trial_id)

    def open_runs(self) -> list[Run]:
        """Return the runs that are known to be open."""
        return list(self._runs.values())

    def is_known(self, run_id: int) -> bool:
        """Say whether a run is open here."""
        return run_id in self._runs

    def end_budget(self, run_id: int) -> None:
        """Start nothing of this run any more; what is under way goes on to its end."""
        self._over.add(run_id)
        for trial in self._trials_of(run_id):
            self._board.take(trial.trial_id)

    def is_done(self, run_id: int) -> bool:
        """Say whether nothing of a run is under way or left to do."""
        if self.slots_of(run_id):
            return False
        return run_id in self._over or not any(True for _ in self._trials_of(run_id))

    # Units

    def next_units(self) -> list[Dispatch]:
        """Fill the idle slots: longest remaining work first."""
        chosen = []
        for assignment in self._board.choose(sorted(self._idle), self._cached):
            trial = self._trials[assignment.trial_id]
            unit = next_unit(trial)
            if unit is None:
                continue
            self._idle.discard(assignment.slot_id)
            self._busy[assignment.slot_id] = unit
            self._cached[assignment.slot_id].add((unit.run_id, unit.partition_number))
            attempt = self._attempts.get(trial.trial_id, 0) + 1
            chosen.append(Dispatch(unit, self._runs[trial.run_id].seed, assignment.slot_id, attempt))
        return chosen

    def recorded(self, slot_id: int, seconds: float) -> None:
        """Take in that the slot's unit is recorded."""
        unit = self._answered(slot_id)
        self._attempts.pop(unit.trial_id, None)
        trial = self._trials.get(unit.trial_id)
        if trial is None:
            return
        architecture = self._runs[unit.run_id].architectures[unit.trial_id]
        self._seconds.observe(ObservedUnit(unit.trial_id, architecture, unit.kind, seconds))
        self._timed.add(unit.trial_id)
        moved = replace(trial, n_steps_done=unit.step + 1, state="running")
        if next_unit(moved) is None:
            del self._trials[unit.trial_id]
        else:
            self._trials[unit.trial_id] = moved
            self._offer(moved)

    def lost(self, slot_id: int) -> None:
        """Take in that the slot's unit came to nothing with its session; its trial is offered again."""
        self.refused(slot_id)
        self.slot_gone(slot_id)

    def refused(self, slot_id: int) -> None:
        """Take in that the slot's unit came to nothing; its trial is offered again."""
        unit = self._answered(slot_id)
        trial = self._trials.get(unit.trial_id)
        if trial is not None:
            self._attempts[unit.trial_id] = self._attempts.get(unit.trial_id, 0) + 1
            self._offer(trial)

    def n_attempts(self, trial_id: int) -> int:
        """Return how often the trial's next unit came to nothing; 0 for a trial that is not open."""
        return self._attempts.get(trial_id, 0)

    def failed(self, slot_id: int) -> None:
        """Take in that the slot's unit ended its trial."""
        self.drop_trial(self._answered(slot_id).trial_id)

    def drop_trial(self, trial_id: int) -> None:
        """Start nothing of a trial any more."""
        self._trials.pop(trial_id, None)
        self._attempts.pop(trial_id, None)
        self._board.take(trial_id)

    def _answered(self, slot_id: int) -> TrainingUnit:
        unit = self._busy.pop(slot_id)
        if slot_id in self._cached:
            self._idle.add(slot_id)
        return unit

    def _trials_of(self, run_id: int) -> Iterable[Trial]:
        run = self._runs.get(run_id)
        return (self._trials[t.trial_id] for t in run.trials if t.trial_id in self._trials) if run else ()

    def _offer(self, trial: Trial) -> None:
        """Put an idle trial of a run within its budget on the board."""
        unit = next_unit(trial)
        is_busy = any(other.trial_id == trial.trial_id for other in self._busy.values())
        if unit is None or is_busy or trial.run_id in self._over:
            return
        architecture = self._runs[trial.run_id].architectures[trial.trial_id]
        # A trial that was not timed yet goes first: the longest one should not be found out last.
        is_timed = trial.trial_id in self._timed
        remaining = self._seconds.remaining(trial, architecture) if is_timed else math.inf
        self._board.put(Candidate(trial.trial_id, trial.run_id, trial.trial_number, unit.partition_number, remaining))

    def _rebuild_board(self) -> None:
        self._board = Board(max(len(self._cached), 1))
        for trial in self._trials.values():
            self._offer(trial)
