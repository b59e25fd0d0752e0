"""What all processes share in memory: rows of every table, the lease, and how runs and trials may change.

Each subject's rules are a module of their own: run_table.py, arm_table.py, search_table.py, unit_table.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from easeml_db.coordinator.ports.messages import Order
from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.opening import Belief, Opening
from easeml_db.decisions.trial_groups.allocation import AllocationLog
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile
from easeml_db.errors import NotAllowed, NotFound, StaleLease
from easeml_db.words.run import Arm, Run
from easeml_db.words.tenant import PastArm, Tenancy
from easeml_db.words.trial import RUN_TRANSITIONS, TRIAL_TRANSITIONS, Trial, is_legal

OPEN = frozenset({"queued", "running"})
OPEN_TRIAL = frozenset({"waiting", "running"})
STOPPABLE_TRIAL = OPEN_TRIAL | {"paused"}

ScoreOf = Callable[[int, int], float]  # trial number, epoch; higher is better


class BrokenRule(AssertionError):
    """The coordinator broke a rule that every world enforces: a unit recorded twice, two units at once on a slot."""


class RecordedUnit(NamedTuple):
    """A row of the visit log; a gang has one for each rank, with the order of that rank alone."""

    order: Order
    started_seconds: float
    finished_seconds: float
    n_slots: int = 1


class Rows:
    """The rows. `held` are the runs whose rows a user's transaction has locked: nothing waits for them. Runs in
    `unreadable` have invalid rows.
    """

    def __init__(self) -> None:
        self.lease_number = 0
        self.units: list[RecordedUnit] = []
        self.units_of: defaultdict[int, list[RecordedUnit]] = defaultdict(list)  # the same, by trial
        self.notes: list[tuple[str, str]] = []
        self.plans: list[tuple[int, str]] = []
        self.lost_slots: set[int] = set()
        self.held: set[int] = set()
        self.ending: set[int] = set()  # runs whose search is over, and of which only a test is left
        self.unreadable: set[int] = set()
        self.charged: dict[str, float] = {}  # slot seconds of units that failed or were cancelled, by tenant
        self.crashed: set[tuple[int, int, str | None]] = set()  # run, its resumes, architecture that crashed the server
        self.n_lost: Counter[tuple[int, int, int]] = Counter()  # by trial, its units, the run's resumes
        self.tenancy = Tenancy()
        self.past_arms: list[PastArm] = []
        self.openings: list[Opening] = []
        self.priors: dict[int, Prior] = {}
        self.beliefs: dict[int, list[Belief]] = {}
        self.profiles: dict[tuple[str, str], MeasuredProfile] = {}
        self.allocations: list[tuple[int, int, AllocationLog]] = []  # run, lease
        self.begun: dict[int, tuple[Mapping[str, Any], int | None, int]] = {}  # config, parent, inherited epochs
        self.runs_by_id: dict[int, Run] = {}  # with their first trials' places, not their progress
        self.trials: dict[int, Trial] = {}
        self._n_moments = 0

    # The lease

    def draw_lease(self) -> int:
        """Return a new lease number."""
        self.lease_number += 1
        return self.lease_number

    def fence(self, lease_number: int) -> None:
        """Raise StaleLease unless this lease holds."""
        if lease_number != self.lease_number:
            raise StaleLease(f"lease {lease_number} is over, {self.lease_number} holds")

    def may_write(self, run_id: int, lease_number: int) -> bool:
        """Return whether a write to a run takes effect: under the valid lease, on a run that is not locked."""
        return lease_number == self.lease_number and run_id in self.runs_by_id and run_id not in self.held

    def next_moment(self) -> int:
        """Return the number of an opening or a closing."""
        self._n_moments += 1
        return self._n_moments

    def log(self, row: RecordedUnit) -> None:
        """Add a row to the visit log."""
        self.units.append(row)
        self.units_of[row.order.unit.trial_id].append(row)

    # What is read

    def run(self, run_id: int) -> Run:
        """Return a run with its trials and their progress. Raises NotFound if there is none."""
        if run_id not in self.runs_by_id:
            raise NotFound(f"there is no run {run_id}")
        run = self.runs_by_id[run_id]
        return replace(run, trials=tuple(self.trials[trial.trial_id] for trial in run.trials))

    def open_runs(self) -> list[Run]:
        """Return queued and running runs, oldest first."""
        return [self.run(run_id) for run_id in sorted(self.runs_by_id) if self.is_open(run_id)]

    def is_open(self, run_id: int) -> bool:
        """Return whether a run exists and is not over."""
        return run_id in self.runs_by_id and self.runs_by_id[run_id].status in OPEN

    def arm(self, run_id: int, arm_id: int) -> Arm:
        """Return an arm of a run."""
        return next(arm for arm in self.runs_by_id[run_id].arms if arm.arm_id == arm_id)

    def set_arm(self, run_id: int, changed: Arm) -> None:
        """Replace an arm of a run."""
        run = self.runs_by_id[run_id]
        arms = tuple(changed if arm.arm_id == changed.arm_id else arm for arm in run.arms)
        self.runs_by_id[run_id] = replace(run, arms=arms)

    # Statuses

    def move_run(self, run_id: int, status: str) -> None:
        """Change a run's status; NotAllowed where that may not follow."""
        run = self.run(run_id)
        if not is_legal(RUN_TRANSITIONS, run.status, status):
            raise NotAllowed(f"run {run_id} cannot go from {run.status} to {status}")
        self.runs_by_id[run_id] = replace(run, status=status)

    def move_trial(self, trial_id: int, status: str) -> None:
        """Change a trial's status; NotAllowed where that may not follow."""
        trial = self.trials[trial_id]
        if not is_legal(TRIAL_TRANSITIONS, trial.status, status):
            raise NotAllowed(f"trial {trial_id} cannot go from {trial.status} to {status}")
        self.trials[trial_id] = replace(trial, status=status)

    def move_trials(self, run_id: int, before: frozenset[str], status: str) -> None:
        """Change the status of all trials of a run that have one of the statuses `before`."""
        for trial in list(self.trials.values()):
            if trial.run_id == run_id and trial.status in before:
                self.move_trial(trial.trial_id, status)


def is_at_pause(trial: Trial) -> bool:
    """Return whether a trial has reached a target before its end."""
    return trial.due_epochs < trial.max_epochs and trial.n_steps_done == 2 * trial.due_epochs * trial.n_partitions
