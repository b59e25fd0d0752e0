"""Handling of units that failed or were lost: the unit is queued again, or its trial fails."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from easeml_db.coordinator.crashes import Crashes
from easeml_db.coordinator.disk_pause import DiskPause
from easeml_db.coordinator.failed_time import FailedTime
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.pauses import Pauses
from easeml_db.coordinator.ports.messages import Order, SlotStuck, UnitFailed, UnitRecorded
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.coordinator.ports.slots import SlotStore
from easeml_db.coordinator.ports.space import StateSpace
from easeml_db.coordinator.procedure_runner import ProcedureRunner
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.errors import (
    EasemlError,
    NotFound,
    OutOfSpace,
    RowsHeld,
    ServerCrashed,
    SlotLost,
    StaleLease,
    VersionMismatch,
)


class UnitFailures:
    """Tells the dispatcher and the tables. `renew_run` reads a run again and serves it as the tables then say."""

    def __init__(
        self,
        slots: SlotStore,
        runs: RunStore,
        space: StateSpace,
        lease: Lease,
        dispatcher: Dispatcher,
        procedures: ProcedureRunner,
        *,
        crashes: Crashes,
        failed_time: FailedTime,
        renew_run: Callable[[int], Awaitable[None]],
        max_attempts: int,
    ) -> None:
        self._slots, self._runs, self._lease = slots, runs, lease
        self._dispatcher, self._procedures = dispatcher, procedures
        self._crashes, self._failed_time = crashes, failed_time
        self._renew_run, self._max_attempts = renew_run, max_attempts
        self.pauses, self.disk_pause = Pauses(dispatcher.runs), DiskPause(runs, space)

    async def failed(self, message: UnitFailed, now_seconds: float) -> None:
        """Handle the error of a unit, and charge its tenant."""
        self._failed_time.failed(message.order, now_seconds)
        await self._follow(message, now_seconds)
        await self._charge()

    async def _follow(self, message: UnitFailed, now_seconds: float) -> None:
        """Handle the error of a unit."""
        order, error = message.order, message.error
        if isinstance(error, OutOfSpace):
            self._dispatcher.refused(order.slot_id, is_counted=False)
            await self.disk_pause.begin(order, error, now_seconds)
        elif isinstance(error, RowsHeld):
            self._dispatcher.refused(order.slot_id, is_counted=False)
            self.pauses.put_aside(order.unit.run_id, now_seconds)
        elif isinstance(error, ServerCrashed):
            self._crashes.add(message)
            self._dispatcher.lost(order.slot_id)
            await self.count_crashes()
        elif isinstance(error, SlotLost):
            self._dispatcher.lost(order.slot_id)
            await self._try_again(order, error)
        elif isinstance(error, StaleLease | NotFound):
            self._dispatcher.refused(order.slot_id)
            await self._lease.confirm()
            await self._try_again(order, error)
        elif isinstance(error, VersionMismatch):
            raise error  # every unit would fail alike, and no trial is to blame
        elif order.measured_seconds:  # beside others a trial may fail that would not fail alone
            self._dispatcher.refused(order.slot_id, is_counted=False)
        elif order.is_batch:  # it is unknown whose fault it was; run alone, only the trial at fault fails
            self._dispatcher.refused(order.slot_id)
            await self._try_again(order, error)
        else:
            self._dispatcher.failed(order.slot_id)
            if order.unit.run_id in self._dispatcher.runs:
                await self._fail_trial(order, str(error))

    async def members_failed(self, message: UnitRecorded, now_seconds: float) -> None:
        """Handle the errors of members of a batch whose other members are recorded."""
        for order in message.order.by_trial():
            error = message.failures.get(order.unit.trial_id)
            if error is not None:
                await self._follow_member(order, error, now_seconds)

    async def _follow_member(self, order: Order, error: EasemlError, now_seconds: float) -> None:
        run_id, trial_id = order.unit.run_id, order.unit.trial_id
        is_held = isinstance(error, RowsHeld)
        if is_held or isinstance(error, StaleLease | NotFound):
            self._dispatcher.member_refused(run_id, trial_id, order.slot_id, is_counted=not is_held)
        if is_held:
            self.pauses.put_aside(run_id, now_seconds)
        elif isinstance(error, StaleLease | NotFound):
            await self._lease.confirm()
            await self._try_again(order, error)
        else:
            self._dispatcher.drop_trial(run_id, trial_id)
            if run_id in self._dispatcher.runs:
                await self._fail_trial(order, str(error))

    async def stuck(self, message: SlotStuck, now_seconds: float) -> None:
        """Fence the slots first, then offer their unit elsewhere."""
        order, reason = message.order, message.reason
        self._failed_time.failed(order, now_seconds)
        for slot_id in message.slot_ids:
            await self._slots.lose(slot_id, reason)
            await self._runs.note(
                order.unit.run_id, order.unit.trial_id, "slot lost", f"slot {slot_id} is given up: {reason}"
            )
        self._dispatcher.lost(order.slot_id)
        await self._try_again(order, SlotLost(reason))
        await self._charge()

    async def count_crashes(self) -> None:
        """Count crashes of the server as attempts of the trials during whose units they happened."""
        async for order, n_crashes, error in self._crashes.told():
            if n_crashes >= self._max_attempts and order.unit.run_id in self._dispatcher.runs:
                self._dispatcher.drop_trial(order.unit.run_id, order.unit.trial_id)
                await self._fail_trial(order, f"{n_crashes} attempts failed, the last: {error}")

    async def _charge(self) -> None:
        """Record at once the time of failed units, because it is recorded nowhere else."""
        with contextlib.suppress(OutOfSpace):
            await self._failed_time.charge()

    async def _try_again(self, order: Order, error: EasemlError) -> None:
        """Offer the unit again, unless it was recorded after all, the run is over, or it failed too often."""
        unit = order.unit
        if unit.run_id not in self._dispatcher.runs:
            return
        if unit.kind == "train" and self._dispatcher.runs[unit.run_id].is_over:
            return  # it was cut short at the end of the run's time
        await self._renew_run(unit.run_id)
        for one in order.by_trial():
            await self._count_attempt(one, error)

    async def _count_attempt(self, order: Order, error: EasemlError) -> None:
        """Fail the trial of a unit that failed too often."""
        unit, n_attempts = order.unit, self._dispatcher.n_attempts(order.unit.run_id, order.unit.trial_id)
        if n_attempts == 0:
            return
        await self._runs.note(unit.run_id, unit.trial_id, "retry", f"attempt {n_attempts} failed: {error}")
        if n_attempts >= self._max_attempts:
            self._dispatcher.drop_trial(unit.run_id, unit.trial_id)
            await self._fail_trial(order, f"{n_attempts} attempts failed, the last: {error}")

    async def _fail_trial(self, order: Order, reason: str) -> None:
        await self._lease.confirm()
        await self._runs.fail_trial(order.unit.run_id, order.unit.trial_id, reason)
        self._procedures.trial_changed(order.unit.run_id, order.unit.trial_id)
