"""Runs, trials, the lease and recorded units in memory, under the rules of the SQL tables and functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from easeml_db.coordinator.ports.messages import Order
from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.decisions.tenancy.opening import Belief, Opening
from easeml_db.decisions.trial_groups.allocation import AllocationLog
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile
from easeml_db.errors import NotAllowed, NotFound, StaleLease
from easeml_db.words.run import Arm, Run
from easeml_db.words.tenant import PastArm, Tenancy
from easeml_db.words.training_unit import PILOT, after, n_steps_total
from easeml_db.words.trial import RUN_TRANSITIONS, TRIAL_TRANSITIONS, Trial, is_legal

OPEN = frozenset({"queued", "running"})
OPEN_TRIAL = frozenset({"waiting", "running"})
STOPPABLE_TRIAL = OPEN_TRIAL | {"paused"}


ScoreOf = Callable[[int, int], float]  # trial number, epoch; higher is better


class BrokenRule(AssertionError):
    """The coordinator did what no world would let pass: a unit recorded twice, two units at once on a slot."""


@dataclass(frozen=True)
class RecordedUnit:
    """A row of the visit log; of a gang there is one for each rank, with the order of that rank alone."""

    order: Order
    started_seconds: float
    finished_seconds: float
    n_slots: int = 1


def new_run(
    run_id: int,
    *,
    n_trials: int,
    n_partitions: int,
    max_epochs: int,
    seed: int = 0,
    max_seconds: float | None = None,
    architectures: Sequence[str] = ("mlp",),
    scheduler: str = "longest_remaining",
    visit_order: str = "cyclic",
    holders: Sequence[Collection[int]] | None = None,
    owner: str = "tenant",
    allocation: str = "hopping",
    joint_architectures: Collection[str] = ("mlp", "linear"),
) -> Run:
    """Return a queued run of fresh trials; architectures take turns and are the arms, trial ids are
    100000 * run_id + number, arm ids 1000 * run_id + number."""
    trials = tuple(
        Trial(100_000 * run_id + number, run_id, number, n_partitions, max_epochs, 0, "waiting", visit_order)
        for number in range(1, n_trials + 1)
    )
    chosen = {trial.trial_id: architectures[trial.trial_number % len(architectures)] for trial in trials}
    names = list(dict.fromkeys(chosen.values()))
    arms = tuple(Arm(1000 * run_id + k, name, float(n_partitions * max_epochs)) for k, name in enumerate(names, 1))
    arm_of = {trial_id: 1000 * run_id + 1 + names.index(name) for trial_id, name in chosen.items()}
    held = None if holders is None else tuple(frozenset(segments) for segments in holders)
    return Run(
        run_id,
        seed,
        "queued",
        max_seconds,
        None,
        trials,
        chosen,
        scheduler,
        visit_order,
        held,
        owner,
        arms=arms,
        arm_of=arm_of,
        allocation=allocation,
        joint_architectures=frozenset(joint_architectures),
    )


def _is_at_pause(trial: Trial) -> bool:
    """Say whether a trial has reached a target that is not its end."""
    return trial.due_epochs < trial.max_epochs and trial.n_steps_done == 2 * trial.due_epochs * trial.n_partitions


class Tables:
    """What outlives every process. Each method is one transaction, as the function of its name in SQL is."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self.lease_number = 0
        self.units: list[RecordedUnit] = []
        self.notes: list[tuple[str, str]] = []
        self.plans: list[tuple[int, str]] = []
        self.lost_slots: set[int] = set()
        self.tenancy = Tenancy()
        self.past_arms: list[PastArm] = []
        self.openings: list[Opening] = []
        self.priors: dict[int, Prior] = {}
        self.beliefs: dict[int, list[Belief]] = {}
        self.profiles: dict[tuple[str, str], MeasuredProfile] = {}
        self.allocations: list[tuple[int, int, AllocationLog]] = []  # run, lease
        self.begun: dict[int, tuple[Mapping[str, Any], int | None, int]] = {}  # config, parent, inherited epochs
        self._n_moments = 0
        self._keys: set[tuple[int, str, int, int]] = set()
        self._runs: dict[int, Run] = {}
        self._trials: dict[int, Trial] = {}
        for run in runs:
            self.add_run(run)

    # What is asked for

    def add_run(self, run: Run) -> None:
        """Insert a run with its trials."""
        self._runs[run.run_id] = run
        self._trials.update({trial.trial_id: trial for trial in run.trials})

    def cancel_run(self, run_id: int) -> None:
        """Cancel an open run and its open trials; NotAllowed when it is over."""
        self._move_run(run_id, "cancelled")
        self._move_trials(run_id, STOPPABLE_TRIAL, "cancelled")

    def resume_run(self, run_id: int) -> None:
        """Queue a cancelled or failed run again, with its cancelled and failed trials."""
        self._move_run(run_id, "queued")
        run = self.run(run_id)
        again = {run.arm_of.get(trial.trial_id) for trial in run.trials if trial.state in ("cancelled", "failed")}
        for arm in run.arms:
            if arm.arm_id in again:
                self._set_arm(run_id, replace(arm, closing=None, quality=None, cost_seconds=None))
        for trial in self.run(run_id).trials:
            if trial.state in ("cancelled", "failed"):
                self._move_trial(trial.trial_id, "paused" if _is_at_pause(trial) else "waiting")

    def drop_run(self, run_id: int) -> None:
        """Delete a run and all that hangs on it."""
        for trial in self._runs.pop(run_id).trials:
            del self._trials[trial.trial_id]
        self.units = [unit for unit in self.units if unit.order.unit.run_id != run_id]

    # What is read

    def run(self, run_id: int) -> Run:
        """Return a run with its trials as they stand; NotFound when there is none."""
        if run_id not in self._runs:
            raise NotFound(f"there is no run {run_id}")
        run = self._runs[run_id]
        return replace(run, trials=tuple(self._trials[trial.trial_id] for trial in run.trials))

    def open_runs(self) -> list[Run]:
        """Return queued and running runs, oldest first."""
        return [self.run(run_id) for run_id in sorted(self._runs) if self._runs[run_id].state in OPEN]

    # What the coordinator writes

    def draw_lease(self) -> int:
        """Return a lease number that nobody had."""
        self.lease_number += 1
        return self.lease_number

    def start_run(self, run_id: int, now_seconds: float) -> None:
        """Mark a queued run as running; do nothing to others. The first start counts."""
        run = self._runs.get(run_id)
        if run is not None and run.state == "queued":
            started = now_seconds if run.started_seconds is None else run.started_seconds
            self._runs[run_id] = replace(run, state="running", started_seconds=started)

    def fail_trial(self, trial_id: int) -> None:
        """Mark an open trial as failed."""
        if trial_id in self._trials and self._trials[trial_id].state in OPEN_TRIAL:
            self._move_trial(trial_id, "failed")

    def finish_run(self, run_id: int, now_seconds: float) -> None:
        """Stop what is left of a run; it failed when every trial failed, else it finished."""
        self.start_run(run_id, now_seconds)
        self._move_trials(run_id, STOPPABLE_TRIAL, "stopped")
        if run_id in self._runs and self._runs[run_id].state == "running":
            has_failed = all(trial.state == "failed" for trial in self.run(run_id).trials)
            self._move_run(run_id, "failed" if has_failed else "finished")

    def keep_allocations(self, run_id: int, lease_number: int, log: AllocationLog) -> None:
        """Write down what was decided; StaleLease."""
        if lease_number != self.lease_number:
            raise StaleLease(f"lease {lease_number} is over, {self.lease_number} holds")
        self.allocations.append((run_id, lease_number, log))

    # Arms

    def open_arm(self, opening: Opening, lease_number: int) -> int:
        """Write a decision down and open its arm; BrokenRule if it is open already."""
        if lease_number != self.lease_number:
            raise StaleLease(f"lease {lease_number} is over, {self.lease_number} holds")
        if opening.run_id not in self._runs or self._runs[opening.run_id].state not in OPEN:
            raise NotFound(f"run {opening.run_id} is not open")
        arm = self._arm(opening.run_id, opening.arm_id)
        if arm.is_open:
            raise BrokenRule(f"arm {arm.arm_id} is open already")
        self._n_moments += 1
        self.openings.append(opening)
        self._set_arm(opening.run_id, replace(arm, opening=self._n_moments, bound=opening.decision.bound))
        return self._n_moments

    def close_arm(self, run_id: int, arm_id: int, quality: float) -> Arm | None:
        """Write down what an arm came to; the cost is the time of its units."""
        if run_id not in self._runs:
            return None
        arm, run = self._arm(run_id, arm_id), self.run(run_id)
        trials = {trial.trial_id for trial in run.trials if run.arm_of.get(trial.trial_id) == arm_id}
        if any(trial.state in STOPPABLE_TRIAL for trial in run.trials if trial.trial_id in trials):
            raise BrokenRule(f"arm {arm_id} has trials that are not over")
        seconds = sum(u.finished_seconds - u.started_seconds for u in self.units if u.order.unit.trial_id in trials)
        if not arm.is_closed:
            self._n_moments += 1
            over = {"finished"} if run.search is None else {"finished", "stopped"}
            is_complete = all(t.state in over for t in run.trials if t.trial_id in trials)
            arm = replace(arm, closing=self._n_moments, quality=quality, cost_seconds=seconds, is_complete=is_complete)
            self._set_arm(run_id, arm)
            if is_complete:
                self.past_arms.append(PastArm(run_id, run.task, arm.name, quality, seconds, arm.work))
        return arm

    def _arm(self, run_id: int, arm_id: int) -> Arm:
        return next(arm for arm in self._runs[run_id].arms if arm.arm_id == arm_id)

    def _set_arm(self, run_id: int, changed: Arm) -> None:
        run = self._runs[run_id]
        arms = tuple(changed if arm.arm_id == changed.arm_id else arm for arm in run.arms)
        self._runs[run_id] = replace(run, arms=arms)

    # Searches

    def trial_history(self, run_id: int, arm_id: int, score_of: ScoreOf) -> list[TrialHistory]:
        """Return what a procedure may know of an arm's trials; a score for each epoch whose validation is recorded."""
        run = self.run(run_id)
        return [self._history_of(run, trial, score_of) for trial in run.trials if run.arm_of[trial.trial_id] == arm_id]

    def _history_of(self, run: Run, trial: Trial, score_of: ScoreOf) -> TrialHistory:
        config, parent_id, inherited_epochs = self.begun.get(trial.trial_id, ({}, None, 0))
        n_epochs = min(trial.n_steps_done // (2 * trial.n_partitions), trial.max_epochs)
        scores = tuple(score_of(trial.trial_number, epoch) for epoch in range(inherited_epochs + 1, n_epochs + 1))
        parent = None if parent_id is None else self._trials[parent_id].trial_number
        full = {"architecture": run.architectures[trial.trial_id], **config}
        return TrialHistory(
            trial.trial_number, full, trial.state, scores, trial.target_epochs, parent, inherited_epochs
        )

    def apply_decisions(
        self, run_id: int, arm_id: int, decisions: Sequence[Mapping[str, Any]], lease_number: int
    ) -> None:
        """Start, continue and stop trials of an arm, all or none; StaleLease, NotFound, as in SQL."""
        if lease_number != self.lease_number:
            raise StaleLease(f"lease {lease_number} is over, {self.lease_number} holds")
        if run_id not in self._runs or self._runs[run_id].state not in OPEN:
            raise NotFound(f"run {run_id} is not open")
        before = dict(self._trials), self._runs[run_id], dict(self.begun)
        try:
            for decision in decisions:
                self._apply(run_id, arm_id, decision)
        except StaleLease:
            self._trials, self._runs[run_id], self.begun = before
            raise

    def _apply(self, run_id: int, arm_id: int, decision: Mapping[str, Any]) -> None:
        by_number = {trial.trial_number: trial for trial in self.run(run_id).trials}
        trial = by_number.get(decision["trial_number"])
        if decision["kind"] == "start":
            if trial is not None:
                raise StaleLease(f"trial {trial.trial_number} was started meanwhile")
            self._start_trial(run_id, arm_id, decision, by_number)
            return
        if trial is None or trial.state != "paused":
            raise StaleLease(f"trial {decision['trial_number']} does not wait")
        if decision["kind"] == "continue":
            if decision["target_epochs"] <= trial.due_epochs:
                raise StaleLease(f"trial {trial.trial_number} has a target of {trial.due_epochs} epochs already")
            self._trials[trial.trial_id] = replace(trial, target_epochs=decision["target_epochs"])
        self._move_trial(trial.trial_id, "waiting" if decision["kind"] == "continue" else "stopped")

    def _start_trial(
        self, run_id: int, arm_id: int, decision: Mapping[str, Any], by_number: Mapping[int, Trial]
    ) -> None:
        run = self._runs[run_id]
        first, inherited = run.trials[0], decision["inherited_epochs"]
        parent = by_number.get(decision["parent"] or 0)
        n_steps = 2 * inherited * first.n_partitions
        if parent is not None and (parent.state != "paused" or parent.n_steps_done != n_steps):
            raise StaleLease(f"trial {parent.trial_number} went on meanwhile")
        trial = replace(
            first,
            trial_id=100_000 * run_id + decision["trial_number"],
            trial_number=decision["trial_number"],
            n_steps_done=n_steps,
            state="waiting",
            met=frozenset(),
            pilot_train_seconds=None,
            pilot_evaluate_seconds=None,
            target_epochs=decision["target_epochs"],
            bracket=decision["bracket"],
        )
        self._trials[trial.trial_id] = trial
        self.begun[trial.trial_id] = decision["config"], None if parent is None else parent.trial_id, inherited
        self._runs[run_id] = replace(
            run,
            trials=(*run.trials, trial),
            architectures={**run.architectures, trial.trial_id: decision["architecture"]},
            arm_of={**run.arm_of, trial.trial_id: arm_id},
        )

    # What units do

    def open_unit(self, order: Order) -> None:
        """Let a unit begin; StaleLease when its step is not due, NotFound when its trial is gone; BrokenRule where its
        arm is not open."""
        trial = self._due_trial(order, OPEN_TRIAL)
        run = self._runs[trial.run_id]
        arm_id = run.arm_of.get(trial.trial_id)
        if order.unit.kind != PILOT and arm_id is not None and not self._arm(run.run_id, arm_id).is_open:
            raise BrokenRule(f"the arm of trial {trial.trial_id} is not open")
        if trial.state == "waiting":
            self._move_trial(trial.trial_id, "running")

    def record(self, order: Order, started_seconds: float, finished_seconds: float) -> None:
        """Record a unit, or all units of a gang, and count the trial's steps; StaleLease when the lease is over, the
        step is not due or a slot was given up."""
        self._check_fence(order)
        trial = self._due_trial(order, frozenset({"running"}))
        ranks = order.alone()
        for rank in ranks:
            self._log(RecordedUnit(rank, started_seconds, finished_seconds, len(ranks)))
            trial = after(trial, rank.unit)
        unit = ranks[-1].unit
        self._trials[unit.trial_id] = trial
        if unit.step + 1 == n_steps_total(trial.n_partitions, trial.max_epochs):
            self._move_trial(unit.trial_id, "finished")
        elif _is_at_pause(self._trials[unit.trial_id]):
            self._move_trial(unit.trial_id, "paused")

    def _log(self, row: RecordedUnit) -> None:
        unit = row.order.unit
        key = (unit.trial_id, unit.kind, unit.epoch, unit.partition_number)
        if key in self._keys:
            raise BrokenRule(f"unit {key} is recorded already")
        self._keys.add(key)
        self.units.append(row)

    def record_pilot(self, order: Order, train_seconds: float, evaluate_seconds: float) -> None:
        """Record what a trial's units are going to take; StaleLease as for a unit."""
        self._check_fence(order)
        trial = self._due_trial(order, frozenset({"running"}))
        self._trials[trial.trial_id] = replace(
            trial, pilot_train_seconds=train_seconds, pilot_evaluate_seconds=evaluate_seconds
        )

    def _check_fence(self, order: Order) -> None:
        if order.lease_number != self.lease_number:
            raise StaleLease(f"lease {order.lease_number} is over, {self.lease_number} holds")
        for slot_id in order.slot_ids:
            if slot_id in self.lost_slots:
                raise StaleLease(f"slot {slot_id} was given up")

    def _due_trial(self, order: Order, states: frozenset[str]) -> Trial:
        trial = self._trials.get(order.unit.trial_id)
        if trial is None:
            raise NotFound(f"trial {order.unit.trial_id} is gone")
        if trial.n_steps_done != order.unit.step or trial.state not in states:
            raise StaleLease(
                f"trial {trial.trial_id} is {trial.state} with {trial.n_steps_done} steps done: "
                f"step {order.unit.step} is not due"
            )
        return trial

    # States

    def _move_run(self, run_id: int, state: str) -> None:
        run = self.run(run_id)
        if not is_legal(RUN_TRANSITIONS, run.state, state):
            raise NotAllowed(f"run {run_id} cannot go from {run.state} to {state}")
        self._runs[run_id] = replace(run, state=state)

    def _move_trial(self, trial_id: int, state: str) -> None:
        trial = self._trials[trial_id]
        if not is_legal(TRIAL_TRANSITIONS, trial.state, state):
            raise NotAllowed(f"trial {trial_id} cannot go from {trial.state} to {state}")
        self._trials[trial_id] = replace(trial, state=state)

    def _move_trials(self, run_id: int, before: frozenset[str], state: str) -> None:
        for trial in list(self._trials.values()):
            if trial.run_id == run_id and trial.state in before:
                self._move_trial(trial.trial_id, state)
