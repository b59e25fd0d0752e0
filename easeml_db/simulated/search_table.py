"""Trials of searches in memory: what a procedure may know of them, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.errors import NotFound, StaleLease
from easeml_db.simulated.rows import Rows, ScoreOf
from easeml_db.words.run import Run
from easeml_db.words.trial import Trial


class SearchTable:
    """Each method is one transaction. `score_of(trial_number, epoch)` is what a procedure sees of a trial."""

    def __init__(self, rows: Rows, score_of: ScoreOf) -> None:
        self._rows, self._score_of = rows, score_of

    def trial_history(self, run: Run, arm_id: int, trial_ids: Sequence[int] | None = None) -> list[TrialHistory]:
        """Return what a procedure may know of an arm's trials; a score for each epoch whose validation is recorded."""
        self._check_open_since(run)
        run = self._rows.run(run.run_id)
        trials = [trial for trial in run.trials if run.arm_of[trial.trial_id] == arm_id]
        if trial_ids is not None:
            trials = [trial for trial in trials if trial.trial_id in trial_ids]
        return [self._history_of(run, trial) for trial in trials]

    def _check_open_since(self, run: Run) -> None:
        """Raise NotFound where a run is over, or was resumed since it was read."""
        if not self._rows.is_open(run.run_id) or self._rows.runs_by_id[run.run_id].n_resumes != run.n_resumes:
            raise NotFound(f"run {run.run_id} is over, or was resumed meanwhile")

    def _history_of(self, run: Run, trial: Trial) -> TrialHistory:
        config, parent_id, inherited_epochs = self._rows.begun.get(trial.trial_id, ({}, None, 0))
        n_epochs = min(trial.n_steps_done // (2 * trial.n_partitions), trial.max_epochs)
        scores = tuple(self._score_of(trial.trial_number, epoch) for epoch in range(inherited_epochs + 1, n_epochs + 1))
        parent = None if parent_id is None else self._rows.trials[parent_id].trial_number
        full = {"architecture": run.architectures[trial.trial_id], **config}
        moments, seconds = self._times_of(trial, inherited_epochs)
        return TrialHistory(
            trial.trial_number, full, trial.status, scores, trial.target_epochs, parent, inherited_epochs,
            moments[: len(scores)], seconds,
        )  # fmt: skip

    def _times_of(self, trial: Trial, inherited_epochs: int) -> tuple[tuple[float, ...], float]:
        """Return when each of a trial's own epochs was validated, and what its units took in all."""
        units = self._rows.units_of[trial.trial_id]
        ends = {u.order.unit.epoch: u.finished_seconds for u in units if u.order.unit.kind == "validate"}
        moments = tuple(end for epoch, end in sorted(ends.items()) if epoch > inherited_epochs)
        return moments, sum(u.finished_seconds - u.started_seconds for u in units)

    def apply_decisions(self, run: Run, arm_id: int, decisions: Sequence[Mapping[str, Any]], lease_number: int) -> None:
        """Start, continue and stop trials of an arm, all or none; StaleLease, NotFound, as in SQL."""
        self._rows.fence(lease_number)
        self._check_open_since(run)
        run_id = run.run_id
        if run_id in self._rows.held:
            raise NotFound(f"somebody is at run {run_id}")
        before = dict(self._rows.trials), self._rows.runs_by_id[run_id], dict(self._rows.begun)
        try:
            for decision in decisions:
                self._apply(run_id, arm_id, decision)
        except StaleLease:
            self._rows.trials, self._rows.runs_by_id[run_id], self._rows.begun = before
            raise

    def _apply(self, run_id: int, arm_id: int, decision: Mapping[str, Any]) -> None:
        by_number = {trial.trial_number: trial for trial in self._rows.run(run_id).trials}
        trial = by_number.get(decision["trial_number"])
        if decision["kind"] == "start":
            if trial is not None:
                raise StaleLease(f"trial {trial.trial_number} was started meanwhile")
            self._start_trial(run_id, arm_id, decision, by_number)
            return
        if trial is None or trial.status != "paused":
            raise StaleLease(f"trial {decision['trial_number']} does not wait")
        if decision["kind"] == "continue":
            if decision["target_epochs"] <= trial.due_epochs:
                raise StaleLease(f"trial {trial.trial_number} has a target of {trial.due_epochs} epochs already")
            self._rows.trials[trial.trial_id] = replace(trial, target_epochs=decision["target_epochs"])
        self._rows.move_trial(trial.trial_id, "waiting" if decision["kind"] == "continue" else "stopped")

    def _start_trial(
        self, run_id: int, arm_id: int, decision: Mapping[str, Any], by_number: Mapping[int, Trial]
    ) -> None:
        run = self._rows.runs_by_id[run_id]
        first, inherited = run.trials[0], decision["inherited_epochs"]
        parent = by_number.get(decision["parent"] or 0)
        n_steps = 2 * inherited * first.n_partitions
        if parent is not None and (parent.status != "paused" or parent.n_steps_done != n_steps):
            raise StaleLease(f"trial {parent.trial_number} went on meanwhile")
        has_crashed = (run_id, run.n_resumes, decision["architecture"]) in self._rows.crashed
        trial = replace(
            first,
            trial_id=100_000 * run_id + decision["trial_number"],
            trial_number=decision["trial_number"],
            n_steps_done=n_steps,
            status="failed" if has_crashed else "waiting",
            met=frozenset(),
            pilot_train_seconds=None,
            pilot_evaluate_seconds=None,
            target_epochs=decision["target_epochs"],
            bracket=decision["bracket"],
        )
        self._rows.trials[trial.trial_id] = trial
        self._rows.begun[trial.trial_id] = decision["config"], None if parent is None else parent.trial_id, inherited
        self._rows.runs_by_id[run_id] = replace(
            run,
            trials=(*run.trials, trial),
            architectures={**run.architectures, trial.trial_id: decision["architecture"]},
            arm_of={**run.arm_of, trial.trial_id: arm_id},
        )
