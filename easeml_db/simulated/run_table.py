"""Runs in memory: what users do to them, and what the coordinator records."""

from __future__ import annotations

from dataclasses import replace

from easeml_db.decisions.hopper.allocation.registry import allocation_of_ending
from easeml_db.errors import InvalidData
from easeml_db.simulated.arm_table import ArmTable
from easeml_db.simulated.rows import OPEN_TRIAL, STOPPABLE_TRIAL, Rows, ScoreOf, is_at_pause
from easeml_db.words.run import Run
from easeml_db.words.trial import Trial


class RunTable:
    """Each method is one transaction. A write of the coordinator under a stale lease, or to a run that is gone or
    locked, changes nothing.
    """

    def __init__(self, rows: Rows, arms: ArmTable, score_of: ScoreOf) -> None:
        self._rows, self._arms, self._score_of = rows, arms, score_of

    # What users do

    def add_run(self, run: Run) -> None:
        """Insert a run with its trials."""
        self._rows.runs_by_id[run.run_id] = run
        self._rows.trials.update({trial.trial_id: trial for trial in run.trials})

    def cancel_run(self, run_id: int) -> None:
        """Cancel an open run and its open trials; NotAllowed when it is over."""
        self._rows.move_run(run_id, "cancelled")
        self._rows.move_trials(run_id, STOPPABLE_TRIAL, "cancelled")

    def resume_run(self, run_id: int) -> None:
        """Queue a cancelled or failed run again, with its cancelled and failed trials."""
        self._rows.move_run(run_id, "queued")
        run = self._rows.run(run_id)
        self._rows.runs_by_id[run_id] = replace(self._rows.runs_by_id[run_id], n_resumes=run.n_resumes + 1)
        again = {run.arm_of.get(trial.trial_id) for trial in run.trials if trial.status in ("cancelled", "failed")}
        for arm in run.arms:
            if arm.arm_id in again:
                self._rows.set_arm(run_id, replace(arm, closing=None, quality=None, cost_seconds=None))
        for trial in self._rows.run(run_id).trials:
            if trial.status in ("cancelled", "failed"):
                self._rows.move_trial(trial.trial_id, "paused" if is_at_pause(trial) else "waiting")

    def drop_run(self, run_id: int) -> None:
        """Delete a run and all that hangs on it."""
        for trial in self._rows.runs_by_id.pop(run_id).trials:
            del self._rows.trials[trial.trial_id]
            self._rows.units_of.pop(trial.trial_id, None)
        self._rows.priors.pop(run_id, None)
        self._rows.beliefs.pop(run_id, None)
        self._rows.units = [unit for unit in self._rows.units if unit.order.unit.run_id != run_id]

    # What the coordinator writes

    def start(self, run_id: int, lease_number: int, now_seconds: float) -> None:
        """Mark a queued run as running; do nothing to others. The first start counts."""
        if self._rows.may_write(run_id, lease_number) and self._rows.runs_by_id[run_id].status == "queued":
            run = self._rows.runs_by_id[run_id]
            started = now_seconds if run.started_seconds is None else run.started_seconds
            self._rows.runs_by_id[run_id] = replace(run, status="running", started_seconds=started)

    def plan(self, run_id: int, lease_number: int, scheduler: str) -> None:
        """Record how a run is scheduled."""
        if self._rows.may_write(run_id, lease_number):
            self._rows.plans.append((run_id, scheduler))

    def fail_trial(self, run_id: int, lease_number: int, trial_id: int, reason: str) -> None:
        """Mark an open trial as failed."""
        if not self._rows.may_write(run_id, lease_number) or trial_id not in self._rows.trials:
            return
        if self._rows.trials[trial_id].status in OPEN_TRIAL:
            self._rows.move_trial(trial_id, "failed")
            self._rows.notes.append(("failed", reason))

    def read(self, run_id: int) -> Run | None:
        """Return an open run, None for any other; InvalidData where its rows cannot be read. Of one that is ending
        neither arms nor a procedure nor a limit matter any more."""
        if not self._rows.is_open(run_id):
            return None
        if run_id in self._rows.unreadable:
            raise InvalidData(f"run {run_id}: a row cannot be read")
        run = self._rows.run(run_id)
        return run.in_its_ending(allocation_of_ending(run.allocation)) if run_id in self._rows.ending else run

    def lost(self, run_id: int, trial_id: int, reason: str) -> int:
        """Note that the server went away; count how often, since something was recorded of the trial."""
        self.note(run_id, "server away", reason)
        since = (trial_id, len(self._rows.units_of[trial_id]), self._rows.run(run_id).n_resumes)
        self._rows.n_lost[since] += 1
        return self._rows.n_lost[since]

    def crashed(self, run_id: int, lease_number: int, trial_id: int, reason: str) -> tuple[list[int], bool]:
        """Note a crash, once; end the open trials of that architecture. Return them, and whether none is left."""
        if not self._rows.may_write(run_id, lease_number):
            return [], run_id not in self._rows.runs_by_id
        run = self._rows.run(run_id)
        name = run.architectures.get(trial_id)
        if (run_id, run.n_resumes, name) not in self._rows.crashed:
            self.note(run_id, "crashed", reason)
        ended = [
            trial.trial_id
            for trial in run.trials
            if trial.status in STOPPABLE_TRIAL and run.architectures.get(trial.trial_id) == name
        ]
        for number in ended:
            is_paused = self._rows.trials[number].status == "paused"
            self._rows.move_trial(number, "stopped" if is_paused else "failed")
            self._rows.notes.append(("failed", reason))
        self._rows.crashed.add((run_id, run.n_resumes, name))
        return ended, True

    def fail(self, run_id: int, lease_number: int, reason: str) -> bool:
        """Fail a run and cancel what is left of its trials; return whether it is over."""
        if not self._rows.may_write(run_id, lease_number) or not self._rows.is_open(run_id):
            return not self._rows.is_open(run_id)
        self._rows.move_trials(run_id, STOPPABLE_TRIAL, "cancelled")
        self._rows.move_run(run_id, "failed")
        self._rows.notes.append(("refused", reason))
        return True

    def begin_ending(self, run_id: int, lease_number: int) -> bool:
        """End the search of a run: stop all trials but the best, and of that leave only its test, unless it had one."""
        is_open = self._rows.may_write(run_id, lease_number) and self._rows.is_open(run_id)
        best = self._best(run_id) if is_open and run_id not in self._rows.ending else None
        if best is None or best.status not in STOPPABLE_TRIAL | {"stopped"}:
            return False
        self._rows.ending.add(run_id)
        status = "running" if best.status == "running" else "waiting"
        n_epochs = _n_epochs(best)
        cut = replace(best, status=status, max_epochs=n_epochs, target_epochs=None, met=frozenset())
        self._rows.trials[best.trial_id] = replace(cut, n_steps_done=2 * n_epochs * best.n_partitions)
        for trial in self._rows.run(run_id).trials:
            if trial.trial_id != best.trial_id and trial.status in STOPPABLE_TRIAL:
                self._rows.move_trial(trial.trial_id, "stopped")
        return True

    def _best(self, run_id: int) -> Trial | None:
        """Return the trial with the best score after any epoch, the first of them; None where nothing was measured."""
        measured = [trial for trial in self._rows.run(run_id).trials if _n_epochs(trial)]
        return max(measured, key=self._best_score, default=None)

    def _best_score(self, trial: Trial) -> float:
        return max(self._score_of(trial.trial_number, epoch) for epoch in range(1, _n_epochs(trial) + 1))

    def finish(self, run_id: int, lease_number: int, now_seconds: float) -> bool:
        """Stop what is left of a run: failed when every trial failed, else finished. Return whether it is over."""
        self.start(run_id, lease_number, now_seconds)
        if not self._rows.may_write(run_id, lease_number) or self._rows.runs_by_id[run_id].status != "running":
            return not self._rows.is_open(run_id)
        self._rows.move_trials(run_id, STOPPABLE_TRIAL, "stopped")
        self._arms.close_all(run_id, lease_number)
        has_failed = all(trial.status == "failed" for trial in self._rows.run(run_id).trials)
        self._rows.move_run(run_id, "failed" if has_failed else "finished")
        return True

    def note(self, run_id: int, kind: str, message: str) -> None:
        """Add an event to a run's history."""
        if run_id in self._rows.runs_by_id and run_id not in self._rows.held:
            self._rows.notes.append((kind, message))


def _n_epochs(trial: Trial) -> int:
    """Return how many epochs of a trial are complete."""
    return min(trial.n_steps_done // (2 * trial.n_partitions), trial.max_epochs)
