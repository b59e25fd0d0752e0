"""Recorded units in memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from easeml_db.coordinator.ports.messages import Order
from easeml_db.errors import NotFound, RowsHeld, StaleLease
from easeml_db.simulated.rows import OPEN_TRIAL, BrokenRule, RecordedUnit, Rows, is_at_pause
from easeml_db.words.training_unit import PILOT, after, n_steps_total
from easeml_db.words.trial import Trial


class UnitTable:
    """Each method is one transaction of a unit."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._keys: set[tuple[int, str, int, int]] = set()

    def forget(self, trial_ids: Collection[int]) -> None:
        """Know no more which units of trials that are gone were recorded."""
        self._keys = {key for key in self._keys if key[0] not in trial_ids}

    def open_unit(self, order: Order) -> None:
        """Let a unit begin; StaleLease when its step is not due, NotFound when its trial is gone, RowsHeld; BrokenRule
        where its arm is not open."""
        trial = self._due_trial(order, OPEN_TRIAL)
        run = self._rows.runs_by_id[trial.run_id]
        arm_id = run.arm_of.get(trial.trial_id)
        if order.unit.kind != PILOT and arm_id is not None and not self._rows.arm(run.run_id, arm_id).is_open:
            raise BrokenRule(f"the arm of trial {trial.trial_id} is not open")
        if trial.status == "waiting":
            self._rows.move_trial(trial.trial_id, "running")

    def record(self, order: Order, started_seconds: float, finished_seconds: float) -> None:
        """Record a unit, or all units of a gang, and count the trial's steps; StaleLease when the lease is over, the
        step is not due or a slot was given up. Of a batch, each member is recorded by itself."""
        self._check_fence(order)
        trial = self._due_trial(order, frozenset({"running"}))
        ranks = order.alone()
        self._check_width(order, trial)
        share = (finished_seconds - started_seconds) / len(ranks) if order.is_whole else 0.0
        for number, rank in enumerate(ranks):
            times = (started_seconds + number * share, started_seconds + (number + 1) * share)
            started, finished = times if order.is_whole else (started_seconds, finished_seconds)
            self._log(RecordedUnit(rank, started, finished, len(order.slot_ids)))
            trial = after(trial, rank.unit)
        unit = ranks[-1].unit
        self._rows.trials[unit.trial_id] = trial
        if unit.step + 1 == n_steps_total(trial.n_partitions, trial.max_epochs):
            self._rows.move_trial(unit.trial_id, "finished")
        elif is_at_pause(self._rows.trials[unit.trial_id]):
            self._rows.move_trial(unit.trial_id, "paused")

    def _check_width(self, order: Order, trial: Trial) -> None:
        """Raise BrokenRule unless a trial that takes all partitions gets a whole round, and no other does."""
        run = self._rows.runs_by_id[trial.run_id]
        is_whole = run.architectures[trial.trial_id] in run.whole_architectures and trial.n_partitions > 1
        if order.is_whole != is_whole or (is_whole and len(order.alone()) != trial.n_partitions):
            raise BrokenRule(f"trial {trial.trial_id} got {len(order.alone())} units on slots {order.slot_ids}")

    def _log(self, row: RecordedUnit) -> None:
        unit = row.order.unit
        key = (unit.trial_id, unit.kind, unit.epoch, unit.partition_number)
        if key in self._keys:
            raise BrokenRule(f"unit {key} is recorded already")
        self._keys.add(key)
        self._rows.log(row)

    def record_pilot(self, order: Order, train_seconds: float, evaluate_seconds: float) -> None:
        """Record the expected durations of a trial's units. Raises StaleLease as for a unit."""
        self._check_fence(order)
        trial = self._due_trial(order, frozenset({"running"}))
        self._rows.trials[trial.trial_id] = replace(
            trial, pilot_train_seconds=train_seconds, pilot_evaluate_seconds=evaluate_seconds
        )

    def _check_fence(self, order: Order) -> None:
        self._rows.fence(order.lease_number)
        for slot_id in order.slot_ids:
            if slot_id in self._rows.lost_slots:
                raise StaleLease(f"slot {slot_id} was given up")

    def _due_trial(self, order: Order, statuses: frozenset[str]) -> Trial:
        trial = self._rows.trials.get(order.unit.trial_id)
        if trial is None:
            raise NotFound(f"trial {order.unit.trial_id} is gone")
        if trial.run_id in self._rows.held:
            raise RowsHeld(f"somebody is at trial {trial.trial_id}")
        if trial.n_steps_done != order.unit.step or trial.status not in statuses:
            raise StaleLease(
                f"trial {trial.trial_id} is {trial.status} with {trial.n_steps_done} steps done: "
                f"step {order.unit.step} is not due"
            )
        return trial
