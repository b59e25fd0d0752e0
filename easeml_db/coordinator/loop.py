"""The loop: start units, record what came of them, keep the lease.

The coordinator holds no truth, only a cache of the tables.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from easeml_db.coordinator.allocation_records import AllocationRecords
from easeml_db.coordinator.arm_opening import ArmOpening
from easeml_db.coordinator.crashes import Crashes
from easeml_db.coordinator.disk_pause import DiskPause
from easeml_db.coordinator.failed_time import FailedTime
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.orders import order_of
from easeml_db.coordinator.pauses import Pauses
from easeml_db.coordinator.ports import Ports
from easeml_db.coordinator.ports.messages import (
    Message,
    Order,
    Piloted,
    RunChanged,
    SlotReady,
    SlotsChanged,
    SlotStuck,
    SlotWaiting,
    StopRequested,
    TenantsChanged,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.coordinator.procedure_runner import ProcedureRunner
from easeml_db.coordinator.reclaiming import Reclaiming
from easeml_db.coordinator.settings import Settings
from easeml_db.decisions.hopper.allocation.contract import Start
from easeml_db.decisions.hopper.dispatcher import Dispatcher
from easeml_db.errors import (
    EasemlError,
    NotFound,
    OutOfSpace,
    RowsHeld,
    ServerCrashed,
    ServerUnavailable,
    SlotLost,
    StaleLease,
    VersionMismatch,
)
from easeml_db.words.run import Run


class Coordinator:
    """Serves open runs until it is told to stop or loses its lease.

    `crashed` holds the units during which the server crashed, until the tables know of them; it outlives coordinators.
    """

    def __init__(self, ports: Ports, settings: Settings | None = None, crashed: list[UnitFailed] | None = None) -> None:
        self._slots, self._runs = ports.slots, ports.runs
        self._executor, self._inbox, self._clock = ports.executor, ports.inbox, ports.clock
        self._settings = settings or Settings()
        self._crashes = Crashes(ports.runs, [] if crashed is None else crashed)
        self._lease = Lease(ports.lease)
        self._dispatcher = Dispatcher()
        self._procedures = ProcedureRunner(ports.searches, ports.runs, self._lease, self._dispatcher)
        self._arms = ArmOpening(ports.tenancy, ports.runs, self._lease, self._dispatcher, self._procedures)
        self._allocations = AllocationRecords(ports.allocations, self._lease, self._dispatcher)
        self._pauses = Pauses(self._dispatcher.runs)
        self._failed_time = FailedTime(ports.tenancy)
        self._reclaiming = Reclaiming(ports.space, self._settings.reclaim_bytes, self._settings.reclaim_fraction)
        self._next_heartbeat = 0.0
        self._is_stopping = False
        self._disk_pause = DiskPause(ports.runs)

    async def serve(self, *, until_idle: bool = False) -> None:
        """Run the loop; with `until_idle` it ends when no run is open. Raises StandbyOnly when the lease is lost."""
        await self._lease.acquire()
        try:
            await self._open_slots()
            await self._arms.take_up()
            await self._count_crashes()
            while not self._is_stopping:
                await self._reclaiming.add(await self._procedures.decide(self._clock.now_seconds()))
                await self._fail_runs()
                await self._arms.close_ended()
                await self._allocations.keep()
                await self._end_runs()
                if until_idle and not self._dispatcher.runs:
                    break
                await self._start_units()
                await self._handle_messages()
                await self._keep_lease()
        except ServerUnavailable:
            await self._executor.close()
            await self._crashes.remember(self._inbox)
            raise
        finally:
            await self._executor.close()
        await self._failed_time.charge()
        await self._lease.release()

    async def _start_units(self) -> None:
        self._pauses.take_back(self._clock.now_seconds())
        if self._clock.now_seconds() < self._disk_pause.until_seconds:
            return
        await self._allocations.look_up()
        now = self._clock.now_seconds()
        await self._arms.take_turns(now)
        starts = self._next_starts()
        while await self._arms.open_next(now):
            starts += self._next_starts()
        self._arms.started(now)
        await self._begin_runs(starts)
        await self._allocations.keep()
        for choice in self._dispatcher.take_scheduler_choices():
            seconds = choice.simulated_seconds, choice.bound_seconds
            await self._runs.plan(choice.run_id, choice.scheduler, *seconds, choice.reason)
        for start, run in starts:
            self._failed_time.begun(start.slots[0], run.tenant, now)
            attempt = self._dispatcher.n_attempts(run.run_id, start.unit.trial_id) + 1
            await self._executor.start(order_of(start, run.seed, lease_number=self._lease.number, attempt=attempt))
        await self._fail_runs()

    def _next_starts(self) -> list[tuple[Start, Run]]:
        """Return what to start, with its run: that may be found to be gone before its units start, and refuse them."""
        return [(start, self._dispatcher.runs[start.unit.run_id].run) for start in self._dispatcher.next_starts()]

    async def _begin_runs(self, starts: Sequence[tuple[Start, Run]]) -> None:
        """Record which runs begin with these starts, before what they decided: no placement precedes its run."""
        now = self._clock.now_seconds()
        for run_id in dict.fromkeys(run.run_id for _, run in starts):
            open_run = self._dispatcher.runs.get(run_id)
            if open_run is not None and open_run.begin(now):
                await self._runs.start(run_id)

    async def _handle_messages(self) -> None:
        """Wait for a message, then handle all that have arrived: slots and runs often change together."""
        message = await self._inbox.next(self._until_next())
        while message is not None:
            await self._handle(message)
            message = await self._inbox.next(0.0)

    async def _handle(self, message: Message) -> None:
        match message:
            case UnitRecorded(order, seconds, pruned_bytes):
                self._dispatcher.recorded(order.slot_id, seconds)
                self._procedures.recorded(order.alone()[-1].unit)
                self._pauses.recorded(order.unit.run_id)
                self._disk_pause.recorded()
                await self._reclaiming.add(pruned_bytes)
                await self._close_drained(order)
            case Piloted(order, train_seconds, evaluate_seconds, sample):
                self._dispatcher.piloted(order.slot_id, train_seconds, evaluate_seconds, sample)
                self._arms.timed(order.unit.run_id)
                await self._close_drained(order)
            case UnitFailed():
                self._failed_time.failed(message.order, self._clock.now_seconds())
                await self._unit_failed(message)
                await self._close_drained(message.order)
            case SlotStuck():
                self._failed_time.failed(message.order, self._clock.now_seconds())
                await self._slot_stuck(message)
            case SlotReady(slot_id):
                self._dispatcher.board.ready(slot_id)
                await self._slots.explain(slot_id, None)
            case SlotWaiting(slot_id, reason):
                self._dispatcher.board.waiting(slot_id)
                await self._slots.explain(slot_id, reason)
            case RunChanged(run_id):
                await self._renew_run(run_id)
            case SlotsChanged():
                await self._open_slots()
            case TenantsChanged():
                await self._arms.renew_tenancy()
            case StopRequested():
                self._is_stopping = True

    async def _unit_failed(self, message: UnitFailed) -> None:
        order, error = message.order, message.error
        if isinstance(error, OutOfSpace):
            self._dispatcher.refused(order.slot_id, is_counted=False)
            await self._disk_pause.begin(order, error, self._clock.now_seconds())
        elif isinstance(error, RowsHeld):
            self._dispatcher.refused(order.slot_id, is_counted=False)
            self._pauses.put_aside(order.unit.run_id, self._clock.now_seconds())
        elif isinstance(error, ServerCrashed):
            self._crashes.add(message)
            self._dispatcher.lost(order.slot_id)
            await self._count_crashes()
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
        else:
            self._dispatcher.failed(order.slot_id)
            if order.unit.run_id in self._dispatcher.runs:
                await self._fail_trial(order, str(error))

    async def _try_again(self, order: Order, error: EasemlError) -> None:
        """Offer the unit again, unless it was recorded after all, the run is over, or it failed too often."""
        unit = order.unit
        if unit.run_id not in self._dispatcher.runs:
            return
        await self._renew_run(unit.run_id)
        n_attempts = self._dispatcher.n_attempts(unit.run_id, unit.trial_id)
        if n_attempts == 0:
            return
        await self._runs.note(unit.run_id, unit.trial_id, "retry", f"attempt {n_attempts} failed: {error}")
        if n_attempts >= self._settings.max_attempts:
            self._dispatcher.drop_trial(unit.run_id, unit.trial_id)
            await self._fail_trial(order, f"{n_attempts} attempts failed, the last: {error}")

    async def _count_crashes(self) -> None:
        """Count crashes of the server as attempts of the trials during whose units they happened."""
        async for order, n_crashes, error in self._crashes.told():
            if n_crashes >= self._settings.max_attempts and order.unit.run_id in self._dispatcher.runs:
                self._dispatcher.drop_trial(order.unit.run_id, order.unit.trial_id)
                await self._fail_trial(order, f"{n_crashes} attempts failed, the last: {error}")

    async def _slot_stuck(self, message: SlotStuck) -> None:
        """Fence the slots first, then offer their unit elsewhere."""
        order, reason = message.order, message.reason
        for slot_id in message.slot_ids:
            await self._slots.lose(slot_id, reason)
            await self._runs.note(
                order.unit.run_id, order.unit.trial_id, "slot lost", f"slot {slot_id} is given up: {reason}"
            )
        self._dispatcher.lost(order.slot_id)
        await self._try_again(order, SlotLost(reason))
        await self._open_slots()

    async def _fail_trial(self, order: Order, reason: str) -> None:
        await self._lease.confirm()
        await self._runs.fail_trial(order.unit.run_id, order.unit.trial_id, reason)
        self._procedures.trial_changed(order.unit.run_id, order.unit.trial_id)

    async def _open_slots(self) -> None:
        await self._executor.open(self._dispatcher.board.keep(await self._slots.all_slots()))

    async def _close_drained(self, order: Order) -> None:
        if not self._dispatcher.board.are_active(order.slot_ids):
            await self._open_slots()

    async def _renew_run(self, run_id: int) -> None:
        if not await self._arms.renew(run_id):
            await self._cancel_units(run_id)

    async def _cancel_units(self, run_id: int) -> None:
        for slot_id in list(self._dispatcher.board.slots_of(run_id)):
            await self._executor.cancel(slot_id)

    async def _fail_runs(self) -> None:
        """End the runs that cannot be served; others go on."""
        for run_id, reason in (self._procedures.take_failed() | self._dispatcher.take_failed()).items():
            await self._arms.fail(run_id, reason)
            await self._cancel_units(run_id)

    async def _end_runs(self) -> None:
        now = self._clock.now_seconds()
        for run_id in self._dispatcher.runs.spent(now):
            self._arms.end_budget(run_id)
        await self._arms.end_overdue(now)
        for run_id in self._dispatcher.runs.done():
            await self._lease.confirm()
            if await self._runs.finish(run_id):
                self._arms.drop_run(run_id)
            else:
                self._pauses.put_aside(run_id, now)

    def _until_next(self) -> float:
        """Seconds until there is something to do without a message: a heartbeat, the end of a pause, or a run or an arm
        whose rows somebody held."""
        now = self._clock.now_seconds()
        waits = [
            self._next_heartbeat - now,
            self._procedures.held_until() - now,
            self._pauses.until() - now,
            self._settings.heartbeat_seconds,
        ]
        if self._disk_pause.until_seconds > now:
            waits.append(self._disk_pause.until_seconds - now)
        return max(0.0, min(waits))

    async def _keep_lease(self) -> None:
        if self._clock.now_seconds() >= self._next_heartbeat:
            with contextlib.suppress(OutOfSpace):
                await self._lease.heartbeat()
                await self._arms.fail_later()
                await self._failed_time.charge()
            if await self._slots.recover():
                await self._open_slots()
            self._next_heartbeat = self._clock.now_seconds() + self._settings.heartbeat_seconds
