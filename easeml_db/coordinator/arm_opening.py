"""Opening of arms as the tenancy policy decides, and closing once their trials have ended.

A decision takes effect once it is in the tables; then it is reported to the pool and the dispatcher.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from easeml_db.coordinator.belief_records import BeliefRecords
from easeml_db.coordinator.faults import NOT_THE_RUNS_FAULT, faults_of
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.coordinator.ports.tenancy import TenancyStore
from easeml_db.coordinator.procedure_runner import ProcedureRunner
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.decisions.procedures import is_run_wide
from easeml_db.decisions.tenancy.pool import Pool
from easeml_db.decisions.tenancy.turns import Turns
from easeml_db.errors import EasemlError, InvalidData, NotFound, StaleLease
from easeml_db.words.run import Run
from easeml_db.words.run_check import check_run
from easeml_db.words.tenant import PastArm

TURN_LOOK_SECONDS = 0.1  # looking at all open runs takes a while where there are thousands
HOLD_SECONDS = 5.0  # others wait no longer for newcomers that are timed; a run that was refused waits so long


class ArmOpening:
    """Opens an arm where slots would have nothing to do, and closes it once its trials are over."""

    def __init__(
        self, tenancy: TenancyStore, runs: RunStore, lease: Lease, dispatcher: Dispatcher, procedures: ProcedureRunner
    ) -> None:
        self._tenancy, self._runs, self._lease = tenancy, runs, lease
        self._dispatcher, self._procedures = dispatcher, procedures
        self._pool, self._turns = Pool(), Turns()
        self._records = BeliefRecords(tenancy, lease, self._pool)
        self._weights: dict[str, float] = {}  # of tenants that have one
        self._turns_taken = -TURN_LOOK_SECONDS
        self._held_since: float | None = None
        self._refused: dict[int, float] = {}  # until when a run is passed over
        self._planned_seconds: dict[int, dict[int, float]] = {}  # by arm, by run
        self._to_fail: dict[int, str] = {}  # runs that cannot be served and whose rows were locked, with the reason

    async def take_up(self) -> Mapping[str, Any]:
        """Read the tenancy settings and the results of past runs; return the policy's memory, to be restored once all
        open runs have been read.
        """
        await self.renew_tenancy()
        for past in await self._past_arms():
            self._pool.history.add(past)
        return await self._tenancy.policy_memory(self._pool.policy)

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Restore the policy's memory."""
        self._pool.remember(memory)

    async def renew_tenancy(self) -> None:
        """Read the policy and the tenants' terms."""
        tenancy = await self._tenancy.tenancy()
        self._pool.set_tenancy(tenancy)
        self._turns.max_wait_seconds = tenancy.max_wait_seconds
        self._weights = {one.name: one.weight for one in tenancy.tenants.values()}
        tenants = tenancy.tenants.values()
        self._dispatcher.limits.set_limits({one.name: one.max_slots for one in tenants if one.max_slots is not None})

    def weight(self, tenant: str) -> float:
        """Return the weight of a tenant."""
        return self._weights.get(tenant, 1.0)

    async def _past_arms(self) -> Sequence[PastArm]:
        """Return the arms that runs have closed; none if one of their rows is invalid, because the policy can do
        without them.
        """
        try:
            return await self._tenancy.past_arms()
        except InvalidData:
            return ()

    async def renew(self, run_id: int) -> bool:
        """Read a run from the tables and serve it by them; return whether it is open."""
        is_open = await self.read(run_id)
        await self.keep_records()
        return is_open

    async def read(self, run_id: int) -> bool:
        """Read a run, and return whether it is open; `keep_records` later records what follows. An error that its rows
        raise ends this run only.
        """
        try:
            with faults_of(run_id):
                run = await self._runs.read(run_id)
                if run is not None:
                    await self._put_run(run)
                    return True
        except NOT_THE_RUNS_FAULT:
            raise
        except EasemlError as error:
            await self.fail(run_id, str(error))
        self.drop_run(run_id)
        return False

    async def fail(self, run_id: int, reason: str) -> None:
        """End a run that cannot be served; if its rows are locked, do so later."""
        self.drop_run(run_id)
        if await self._runs.fail(run_id, f"the run cannot be served: {reason}"):
            self._to_fail.pop(run_id, None)
        else:
            self._to_fail[run_id] = reason

    async def fail_later(self) -> None:
        """Try again to end the runs whose rows were locked."""
        for run_id, reason in list(self._to_fail.items()):
            await self.fail(run_id, reason)

    async def _put_run(self, run: Run) -> None:
        """Add or update a run. Arms of unknown cost are timed first."""
        check_run(run)
        self._dispatcher.put_run(run)
        self._procedures.put_run(run)
        if not run.arms or self._dispatcher.runs[run.run_id].is_over:
            return
        prior = await self._tenancy.prior(run.run_id)
        if prior is None:
            prior = self._pool.prior_of(run)
            self._records.began(run.run_id, prior, [arm.arm_id for arm in run.arms])
        is_race = run.search is not None and is_run_wide(run.search.procedure)
        self._pool.put_run(run, prior, is_race=is_race)
        # The first epochs of a race show what its arms cost, and a plan knows it.
        is_planned = self._dispatcher.runs[run.run_id].allocation.follows_plan
        if not is_planned and not is_race:
            self._dispatcher.runs.time_arms(run.run_id, self._pool.untimed_arms(run.run_id))
        self.timed(run.run_id)
        self._records.changed(run.run_id)

    def drop_run(self, run_id: int) -> None:
        """Forget a run."""
        self._planned_seconds.pop(run_id, None)
        self._records.drop(run_id)
        self._procedures.drop_run(run_id)
        self._dispatcher.drop_run(run_id)
        self._pool.drop_run(run_id)

    def end_budget(self, run_id: int) -> None:
        """Start no more units of a run; those under way continue."""
        self._dispatcher.runs.end_budget(run_id)
        self._pool.drop_run(run_id)

    async def end_overdue(self, now_seconds: float) -> None:
        """End the runs whose tenant's deadline has passed."""
        for run_id in self._pool.overdue_runs(now_seconds):
            self.end_budget(run_id)
            await self._runs.note(run_id, None, "deadline", "the tenant's deadline is over: nothing more is begun")

    def timed(self, run_id: int) -> None:
        """Hand the costs that pilots have shown to the pool."""
        open_run = self._dispatcher.runs.get(run_id)
        seconds = open_run.arm_seconds() if open_run is not None else {}
        self._pool.set_seconds(run_id, {**self._planned_seconds.get(run_id, {}), **seconds})

    def planned(self, run_id: int, seconds: Mapping[int, float]) -> None:
        """Pass a plan's expected slot seconds of a run's arms to the pool; times measured since take precedence."""
        self._planned_seconds[run_id] = dict(seconds)
        self.timed(run_id)

    async def take_turns(self, now_seconds: float) -> None:
        """Choose the tenant to serve first, where several have open runs, and open an arm for it."""
        runs = self._dispatcher.runs
        if not runs.is_shared():
            runs.serve_first(None)
        elif not self._turns_taken <= now_seconds < self._turns_taken + TURN_LOOK_SECONDS:
            self._turns_taken = now_seconds
            wanting = {open_run.run.tenant for open_run in runs if open_run.wants_slots()}
            runs.serve_first(self._turns.choose(now_seconds, wanting, self.weight))
            if self._passed_over():
                await self.open_next(now_seconds)

    def started(self, now_seconds: float) -> None:
        """Note for whom slots work, once units have been chosen."""
        runs = self._dispatcher.runs
        if runs.is_shared():
            busy = self._dispatcher.board.busy_runs()
            self._turns.started(now_seconds, [runs[run_id].run.tenant for run_id, _ in busy if run_id in runs])

    def _passed_over(self) -> list[int] | None:
        """Return the runs that may open no arm because no slot is free for it; None: no run may. The tenant whose turn
        it is may still open its first arm, because it is served first.
        """
        if self._dispatcher.demand.n_spare_slots() > 0:
            return []
        first = self._turns.first
        if first is None or not self._dispatcher.runs.is_shared() or self._dispatcher.demand.has_demand(first):
            return None
        return [open_run.run_id for open_run in self._dispatcher.runs if open_run.run.tenant != first]

    async def open_next(self, now_seconds: float) -> bool:
        """Open the arm that the policy chooses, if slots would have nothing to do; say whether something changed."""
        self._refused = {run_id: until for run_id, until in self._refused.items() if until > now_seconds}
        if await self._open_for_races(now_seconds):
            return True
        with_reserved_slots, passed_over = self._dispatcher.demand.runs_with_reserved_slots(), self._passed_over()
        waiting = {*self._dispatcher.demand.blocked_runs(), *self._refused}
        if passed_over is not None:
            blocked = {*waiting, *self._kept_waiting(now_seconds), *passed_over, *with_reserved_slots}
            if await self._open(now_seconds, blocked):
                return True
        to_spare = self._dispatcher.demand.runs_with_reserved_slots_to_spare() if with_reserved_slots else []
        if not to_spare:
            return False
        others = {open_run.run_id for open_run in self._dispatcher.runs}.difference(to_spare)
        return await self._open(now_seconds, waiting | others)

    async def _open_for_races(self, now_seconds: float) -> bool:
        """Open an arm for a race that gave up a slot for it, before a long trial of another run takes that slot."""
        runs = self._dispatcher.runs
        races = {*self._procedures.runs_that_wait()}.difference(runs.aside(), self._refused)
        return bool(races) and await self._open(now_seconds, {open_run.run_id for open_run in runs} - races)

    async def _open(self, now_seconds: float, blocked: Collection[int]) -> bool:
        """Open the arm that the policy chooses among the runs that are not blocked."""
        opening = self._pool.choose(now_seconds, n_slots=self._dispatcher.board.n_active(), blocked=blocked)
        if opening is None:
            return False
        try:
            number = await self._lease.write(self._tenancy.open_arm(opening))
        except (NotFound, StaleLease):
            self._refused[opening.run_id] = now_seconds + HOLD_SECONDS  # the run's row may be locked
            await self.renew(opening.run_id)  # the tables were ahead: it is over, gone, or its arm is open
            return True
        self._pool.opened(opening, number)
        self._dispatcher.runs.open_arm(opening.run_id, opening.arm_id, number)
        self._procedures.arm_opened(opening.run_id, opening.arm_id)
        self._records.changed(opening.run_id)
        await self.keep_records()
        return True

    async def close_ended(self) -> None:
        """Record the results of arms whose trials have all ended."""
        for run_id, arm_id in self._dispatcher.runs.arms_to_close():
            try:
                arm = await self._lease.write(self._tenancy.close_arm(run_id, arm_id))
            except StaleLease:
                continue
            if arm is not None and not arm.is_closed:
                self._dispatcher.runs.not_closed(run_id, arm_id)  # its row is locked, or a trial is open again
            elif arm is not None and run_id in self._pool:
                self._pool.arm_closed(self._dispatcher.runs[run_id].run, arm)
                self._records.changed(run_id)
        await self.keep_records()

    def _kept_waiting(self, now_seconds: float) -> list[int]:
        """Return the runs served already, while a newcomer is timed: for a moment it comes before them."""
        served = self._pool.served_runs() if self._dispatcher.demand.is_newcomer_timed() else []
        if not served:
            self._held_since = None  # the interval begins once a tenant waits
            return []
        self._held_since = now_seconds if self._held_since is None else self._held_since
        return served if now_seconds < self._held_since + HOLD_SECONDS else []

    async def keep_records(self) -> None:
        """Record priors and beliefs; numbers that the tables refuse end their run only."""
        for run_id, error in (await self._records.keep()).items():
            await self.fail(run_id, str(error))
