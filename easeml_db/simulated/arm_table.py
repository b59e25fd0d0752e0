"""Arms in memory: openings, closings, priors and beliefs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.opening import Belief, Opening
from easeml_db.errors import NotFound, StaleLease
from easeml_db.simulated.rows import STOPPABLE_TRIAL, Rows
from easeml_db.words.run import Arm
from easeml_db.words.tenant import PastArm


class ArmTable:
    """Each method is one transaction. `quality_of(run_id, arm_id)` is the quality that an arm reaches."""

    def __init__(self, rows: Rows, quality_of: Callable[[int, int], float]) -> None:
        self._rows, self._quality_of = rows, quality_of

    def open(self, opening: Opening, lease_number: int) -> int:
        """Record a decision and open its arm. Raises StaleLease, also if it is open already, and NotFound."""
        self._rows.fence(lease_number)
        run_id = opening.run_id
        if not self._rows.is_open(run_id) or run_id in self._rows.held:
            raise NotFound(f"run {run_id} is not open, or somebody is at it")
        arm = self._rows.arm(run_id, opening.arm_id)
        if arm.is_open:
            raise StaleLease(f"arm {arm.arm_id} was opened meanwhile")
        number = self._rows.next_moment()
        self._rows.openings.append(opening)
        self._rows.set_arm(run_id, replace(arm, opening=number, bound=opening.decision.bound))
        return number

    def close(self, run_id: int, arm_id: int, lease_number: int) -> Arm | None:
        """Record the result of an arm, unless a trial is open or the run locked; its cost is the time of its units."""
        self._rows.fence(lease_number)
        if run_id not in self._rows.runs_by_id:
            return None
        arm = self._rows.arm(run_id, arm_id)
        if arm.is_open and not arm.is_closed and self._is_over(run_id, arm_id) and run_id not in self._rows.held:
            arm = self._closed(run_id, arm)
            self._rows.set_arm(run_id, arm)
            if arm.is_complete and arm.quality is not None and arm.cost_seconds is not None:
                task = self._rows.runs_by_id[run_id].task
                past = PastArm(run_id, task, arm.name, arm.quality, arm.cost_seconds, arm.work)
                self._rows.past_arms.append(past)
        return arm

    def close_all(self, run_id: int, lease_number: int) -> None:
        """Close the open arms of a run that ends."""
        for arm in self._rows.runs_by_id[run_id].arms:
            self.close(run_id, arm.arm_id, lease_number)

    def keep_prior(self, run_id: int, lease_number: int, prior: Prior) -> None:
        """Record the first prior of a run."""
        if self._rows.may_write(run_id, lease_number):
            self._rows.priors.setdefault(run_id, prior)

    def keep_beliefs(self, run_id: int, lease_number: int, beliefs: Sequence[Belief]) -> None:
        """Record the beliefs about a run's arms. Raises StaleLease."""
        self._rows.fence(lease_number)
        if self._rows.may_write(run_id, lease_number):
            self._rows.beliefs[run_id] = list(beliefs)

    def _trial_ids(self, run_id: int, arm_id: int) -> set[int]:
        return {trial_id for trial_id, arm in self._rows.runs_by_id[run_id].arm_of.items() if arm == arm_id}

    def _is_over(self, run_id: int, arm_id: int) -> bool:
        return all(self._rows.trials[trial].status not in STOPPABLE_TRIAL for trial in self._trial_ids(run_id, arm_id))

    def _closed(self, run_id: int, arm: Arm) -> Arm:
        trials, run = self._trial_ids(run_id, arm.arm_id), self._rows.runs_by_id[run_id]
        units = [unit for unit in self._rows.units if unit.order.unit.trial_id in trials]
        over = {"finished"} if run.search is None else {"finished", "stopped"}
        return replace(
            arm,
            closing=self._rows.next_moment(),
            quality=self._quality_of(run_id, arm.arm_id),
            cost_seconds=sum(unit.finished_seconds - unit.started_seconds for unit in units),
            is_complete=all(self._rows.trials[trial_id].status in over for trial_id in trials),
        )
