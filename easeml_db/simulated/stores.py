"""The stores of one simulated process, a class for each port, over tables that all processes share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from easeml_db.coordinator.ports.answering import Answered
from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.decisions.tenancy.opening import Belief, Opening
from easeml_db.decisions.trial_groups.allocation import AllocationLog
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile
from easeml_db.simulated.life import Life
from easeml_db.words.run import Arm, Run
from easeml_db.words.tenant import PastArm, Tenancy
from easeml_db.words.topology import Slot
from easeml_db.words.trial import RUNNABLE


class SimulatedPort:
    """The base of every port of a process: the life that any call may end, and the tables."""

    def __init__(self, life: Life) -> None:
        self._life, self._world, self._tables = life, life.world, life.world.tables


class SimulatedLease(SimulatedPort):
    """LeaseStore in memory."""

    async def acquire(self) -> int:
        """Wait until no other coordinator is active; return a lease number that no other ever had."""
        self._life.call()
        await self._world.lock(self._life)
        self._life.lease_number = self._tables.draw_lease()
        return self._life.lease_number

    async def is_held(self) -> bool:
        """Return whether the lease is still ours."""
        self._life.call()
        return self._tables.lease_number == self._life.lease_number

    async def heartbeat(self) -> None:
        """Give a sign of life."""
        self._life.call()
        self._life.n_heartbeats += 1

    async def release(self) -> None:
        """Give the lease back in good order."""
        self._life.call()
        self._world.unlock(self._life)


class SimulatedSlots(SimulatedPort):
    """SlotStore in memory."""

    async def all_slots(self) -> list[Slot]:
        """Return all slots, whatever their status."""
        self._life.call()
        return list(self._world.slots)

    async def lose(self, slot_id: int, reason: str) -> None:
        """Mark a slot as lost: nothing that its unit still does can be recorded."""
        self._life.call()
        if self._tables.lease_number == self._life.lease_number:
            self._world.lose(slot_id)

    async def explain(self, slot_id: int, reason: str | None) -> None:
        """Record why a slot that should work does not; None: it works."""
        self._life.call()

    async def recover(self) -> list[int]:
        """Reactivate the lost slots whose stuck unit has ended; return them."""
        self._life.call()
        return self._world.recover()


class SimulatedRuns(SimulatedPort):
    """RunStore in memory."""

    async def open_runs(self) -> list[int]:
        """Return the numbers of all queued and running runs, oldest first."""
        self._life.call()
        return [run.run_id for run in self._tables.open_runs()]

    async def read_ahead(self, run_ids: Sequence[int]) -> None:
        """Do nothing: reading ahead saves nothing here."""
        self._life.call()

    async def read(self, run_id: int) -> Run | None:
        """Return an open run; None when it ended or is gone."""
        self._life.call()
        return self._tables.runs.read(run_id)

    async def read_again(self, known: Run) -> Run | None:
        """Return an open run; trials that had no unit to run, and have none now, stay as in `known`."""
        run = await self.read(known.run_id)
        if run is None or run.search is None or run.n_resumes != known.n_resumes:
            return run
        had_units = {trial.trial_id for trial in known.trials if trial.status in RUNNABLE}
        read = [trial for trial in run.trials if trial.status in RUNNABLE or trial.trial_id in had_units]
        return replace(run, trials=tuple(read)).beside(known)

    async def start(self, run_id: int) -> None:
        """Mark a queued run as running."""
        self._life.call()
        self._tables.runs.start(run_id, self._life.lease_number, self._world.now_seconds)

    async def plan(
        self, run_id: int, scheduler: str, simulated_seconds: float | None, bound_seconds: float | None, reason: str
    ) -> None:
        """Record how a run is scheduled from now on."""
        self._life.call()
        self._tables.runs.plan(run_id, self._life.lease_number, scheduler)

    async def fail_trial(self, run_id: int, trial_id: int, reason: str) -> None:
        """Mark a trial as failed, with the reason."""
        self._life.call()
        self._tables.runs.fail_trial(run_id, self._life.lease_number, trial_id, reason)

    async def has_crashed(self, life: str | None) -> bool:
        """Return whether the server crashed: units with a life of it only met a connection that broke."""
        self._life.call()
        return life is None

    async def lost(self, run_id: int, trial_id: int, reason: str) -> int:
        """Note that the server went away; count how often, since something was recorded of the trial."""
        self._life.call()
        return self._tables.runs.lost(run_id, trial_id, reason)

    async def crashed(self, run_id: int, trial_id: int, reason: str) -> tuple[list[int], bool]:
        """Add a crash to the run's history; end the open trials of that architecture in this run. Return them, and
        whether none is left.
        """
        self._life.call()
        return self._tables.runs.crashed(run_id, self._life.lease_number, trial_id, reason)

    async def fail(self, run_id: int, reason: str) -> bool:
        """End a run that cannot be served, with the reason, and cancel what is left of its trials."""
        self._life.call()
        return self._tables.runs.fail(run_id, self._life.lease_number, reason)

    async def begin_ending(self, run_id: int) -> bool:
        """End the search of a run whose best trial is untested; return whether there is something to test."""
        self._life.call()
        return self._tables.runs.begin_ending(run_id, self._life.lease_number)

    async def finish(self, run_id: int) -> bool:
        """End a run: stop what is left of its trials; failed when every trial failed, else finished."""
        self._life.call()
        return self._tables.runs.finish(run_id, self._life.lease_number, self._world.now_seconds)

    async def note(self, run_id: int, trial_id: int | None, kind: str, message: str) -> None:
        """Add an event to the run's history."""
        self._life.call()
        self._tables.runs.note(run_id, kind, message)


class SimulatedTenancy(SimulatedPort):
    """TenancyStore in memory."""

    async def tenancy(self) -> Tenancy:
        """Return how tenants are served."""
        self._life.call()
        return self._tables.tenancy

    async def past_arms(self) -> list[PastArm]:
        """Return the arms that runs have closed."""
        self._life.call()
        return list(self._tables.past_arms)

    async def policy_memory(self, policy: str) -> Mapping[str, Any]:
        """Return the memory that this policy recorded with its last decision."""
        self._life.call()
        memories = [opening.memory for opening in self._tables.openings if opening.policy == policy]
        return json.loads(json.dumps(memories[-1])) if memories else {}

    async def read_ahead(self, run_ids: Sequence[int]) -> None:
        """Read the priors of several runs at once: here a no-op."""
        self._life.call()

    async def prior(self, run_id: int) -> Prior | None:
        """Return the prior with which a run's arms began; None for a run that has none yet."""
        self._life.call()
        return self._tables.priors.get(run_id)

    async def keep_priors(self, priors: Mapping[int, tuple[Prior, Sequence[int]]]) -> None:
        """Record the priors of runs, and about which arms they are."""
        self._life.call()
        for run_id, (prior, _) in priors.items():
            self._tables.arms.keep_prior(run_id, self._life.lease_number, prior)

    async def open_arm(self, opening: Opening) -> int:
        """Record a decision and open its arm; return the decision's number. Raises StaleLease, NotFound."""
        self._life.call()
        return self._tables.arms.open(opening, self._life.lease_number)

    async def close_arm(self, run_id: int, arm_id: int) -> Arm | None:
        """Record the result of an arm once its trials have ended; None if the run is gone."""
        self._life.call()
        return self._tables.arms.close(run_id, arm_id, self._life.lease_number)

    async def charge(self, tenant: str, seconds: float) -> bool:
        """Add slot seconds of failed units to a tenant's usage."""
        self._life.call()
        self._tables.charged[tenant] = self._tables.charged.get(tenant, 0.0) + seconds
        return True

    async def keep_beliefs(self, beliefs: Mapping[int, Sequence[Belief]]) -> None:
        """Record the present beliefs about the arms of these runs."""
        self._life.call()
        for run_id, of_run in beliefs.items():
            self._tables.arms.keep_beliefs(run_id, self._life.lease_number, of_run)


class SimulatedSearches(SimulatedPort):
    """SearchStore in memory."""

    async def trial_history(self, run: Run, arm_id: int, trial_ids: Sequence[int] | None = None) -> list[TrialHistory]:
        """Return what a procedure may know of an arm's trials, or of some of them, by trial_number; NotFound."""
        self._life.call()
        return self._tables.searches.trial_history(run, arm_id, trial_ids)

    async def apply_decisions(self, run: Run, arm_id: int, decisions: Sequence[Mapping[str, Any]]) -> int:
        """Start, continue and stop trials, all or none; no bytes are pruned."""
        self._life.call()
        self._tables.searches.apply_decisions(run, arm_id, decisions, self._life.lease_number)
        return 0


class SimulatedAnswering(SimulatedPort):
    """Answering in memory, at once: it takes no simulated time, so a replay decides the same."""

    def ask(self, tenant: str, question: Callable[[], Answered], seconds: float) -> Future[Answered]:
        """Answer a question, which takes no simulated time."""
        pending: Future[Answered] = Future()
        try:
            pending.set_result(question())
        except Exception as error:  # noqa: BLE001 - as a process does
            pending.set_exception(error)
        return pending


class SimulatedAllocations(SimulatedPort):
    """AllocationStore in memory."""

    async def profiles(self, run_id: int) -> Mapping[tuple[str, str], MeasuredProfile]:
        """Return the known device profiles for the run's dataset, by (architecture, kind of device)."""
        self._life.call()
        return dict(self._tables.profiles) if run_id in self._tables.runs_by_id else {}

    async def keep_profile(self, run_id: int, architecture: str, device_kind: str, measured: MeasuredProfile) -> None:
        """Record the profile that was measured before a run's first units."""
        self._life.call()
        if self._tables.may_write(run_id, self._life.lease_number):
            self._tables.profiles[architecture, device_kind] = measured

    async def keep_allocations(self, run_id: int, log: AllocationLog, labels: Mapping[int, str]) -> None:
        """Record trial groups, labelled by number, and who got which devices."""
        self._life.call()
        self._tables.fence(self._life.lease_number)
        if self._tables.may_write(run_id, self._life.lease_number):
            self._tables.allocations.append((run_id, self._life.lease_number, log))


class SimulatedStateSpace(SimulatedPort):
    """StateSpace in memory."""

    async def reclaim(self) -> int:
        """Count the request as done; return the bytes that the world says are kept."""
        self._life.call()
        self._world.n_reclaims += 1
        return self._world.live_bytes


class SimulatedTasks(SimulatedPort):
    """TaskStore in memory, for a world without fed examples."""

    async def advance(self) -> None:
        """Count as done."""
        self._life.call()
        self._world.n_task_looks += 1
