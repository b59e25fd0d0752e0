"""The loop: messages, decisions, units for idle slots, and work that waits, in turn.

The coordinator holds no truth, only a cache of the tables. The parts of the loop know nothing of it: they return, or
yield, what is to be done next (`effects.py`), and the loop does it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from contextlib import aclosing

from easeml_db.coordinator.allocation_records import AllocationRecords
from easeml_db.coordinator.arm_opening import ArmOpening
from easeml_db.coordinator.carried_over import CarriedOver
from easeml_db.coordinator.crashes import Crashes
from easeml_db.coordinator.effects import CancelUnits, CutTraining, Effect, HandleMessages, OpenSlots, Work
from easeml_db.coordinator.failed_time import FailedTime
from easeml_db.coordinator.instance_keeping import InstanceKeeping
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.orders import order_of
from easeml_db.coordinator.planned_runs import PlannedRuns
from easeml_db.coordinator.ports import Ports
from easeml_db.coordinator.ports.messages import (
    InstanceBilled,
    InstanceDown,
    InstanceFailed,
    InstanceUp,
    Message,
    Order,
    Piloted,
    ProgramSaid,
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
from easeml_db.coordinator.retries import Retries
from easeml_db.coordinator.run_reading import RunReading
from easeml_db.coordinator.settings import Settings
from easeml_db.decisions.hopper.allocation.contract import Start
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.errors import OutOfSpace, ServerUnavailable
from easeml_db.words.run import Run

MESSAGES_A_TURN = 1000


class Coordinator:
    """Serves open runs until it is told to stop or loses its lease.

    New and ended runs are handled one statement at a time. Between two statements the units of all other runs continue,
    so no tenant's unit waits for another tenant's runs, however many.
    """

    def __init__(self, ports: Ports, settings: Settings | None = None, carried_over: CarriedOver | None = None) -> None:
        carried_over = carried_over or CarriedOver()
        self._slots, self._runs = ports.slots, ports.runs
        self._executor, self._inbox, self._clock = ports.executor, ports.inbox, ports.clock
        self._settings = settings or Settings()
        self._crashes = Crashes(ports.runs, carried_over.crashed)
        self._lease = Lease(ports.lease)
        self._dispatcher = Dispatcher()
        self._procedures = ProcedureRunner(ports.searches, ports.runs, self._lease, self._dispatcher)
        self._arms = ArmOpening(ports.tenancy, ports.runs, self._lease, self._dispatcher, self._procedures)
        self._reading = RunReading(ports.runs, ports.tenancy, self._dispatcher.runs, self._arms)
        self._provisioner = ports.provisioner
        self._instances = InstanceKeeping(
            ports.instances, ports.provisioner, self._lease, self._dispatcher.board, ports.clock
        )
        self._planned = PlannedRuns(
            ports.plans, ports.runs, self._lease, self._dispatcher, self._arms, self._instances,
            clock=ports.clock, is_replanning=self._settings.is_replanning,
        )  # fmt: skip
        self._allocations = AllocationRecords(ports.allocations, self._lease, self._dispatcher)
        self._failed_time = FailedTime(ports.tenancy, carried_over.slot_seconds)
        self._retries = Retries(
            ports.slots, ports.runs, ports.space, self._lease, self._dispatcher, self._arms, self._procedures,
            crashes=self._crashes, failed_time=self._failed_time, max_attempts=self._settings.max_attempts,
        )  # fmt: skip
        self._reclaiming = Reclaiming(ports.space, self._settings.reclaim_bytes, self._settings.reclaim_fraction)
        self._tasks = ports.tasks
        self._next_heartbeat, self._is_stopping = 0.0, False

    async def serve(self, *, until_idle: bool = False) -> None:
        """Run the loop; with `until_idle` it ends when no run is open. Raises StandbyOnly when the lease is lost."""
        await self._lease.acquire()
        try:
            await self._open_slots()
            await self._instances.take_up()
            await self._carry_out(self._reading.take_up())
            await self._retries.count_crashes()
            while not self._is_stopping:
                await self._carry_out(self._waiting_work())
                if until_idle and not (self._dispatcher.runs or self._reading or self._instances):
                    break
                await self._start_units()
                await self._handle_messages(self._until_next())
                await self._keep_lease()
        except ServerUnavailable:
            await self._executor.close()
            for message in await self._crashes.remember(self._inbox):
                self._failed_time.failed(message.order, self._clock.now_seconds())
            raise
        finally:
            await self._provisioner.close()
            await self._executor.close()
        await self._failed_time.charge_held()
        await self._lease.release()

    async def _carry_out(self, work: Work) -> None:
        """Do work to its end, and in its midst what it asks for: units of others go on wherever it waits."""
        async with aclosing(work):
            async for effect in work:
                await self._perform([effect])

    async def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case HandleMessages(wait_seconds):
                    if not self._crashes:  # of a trial whose unit met a crash nothing starts before that is counted
                        await self._serve_others(wait_seconds)
                case OpenSlots():
                    await self._open_slots()
                case CancelUnits(run_id):
                    await self._cancel(list(self._dispatcher.board.slots_of(run_id)))
                case CutTraining(run_id):
                    await self._cancel(self._dispatcher.board.training(run_id))

    async def _waiting_work(self) -> Work:
        """Read changed runs, ask procedures, end what is over: statements and thoughts that may take long."""
        async for effect in self._reading.read_some():
            yield effect
        async for effect in self._procedures.decide(self._clock.now_seconds()):
            yield effect
        await self._reclaiming.add(self._procedures.take_pruned_bytes())
        await self._fail_runs()
        await self._arms.close_ended()
        yield HandleMessages()
        await self._allocations.keep()
        async for effect in self._end_runs():
            yield effect

    async def _start_units(self) -> None:
        self._retries.end_pauses(self._clock.now_seconds())
        if self._is_disk_full():
            return
        await self._allocations.look_up()
        now = self._clock.now_seconds()
        await self._perform(await self._planned.look(now))
        await self._perform(await self._instances.settle(now))
        await self._arms.take_turns(now)
        await self._begin(self._next_starts())
        while await self._arms.open_next(now):
            await self._begin(self._next_starts())
        self._arms.started(now)
        await self._fail_runs()

    async def _serve_others(self, timeout_seconds: float) -> None:
        """Handle what has arrived, fill slots that are idle since then from open arms, and keep the lease."""
        if await self._handle_messages(timeout_seconds) and not self._is_disk_full():
            await self._begin(self._next_starts())
        await self._keep_lease()

    def _is_disk_full(self) -> bool:
        return self._retries.are_all_paused(self._clock.now_seconds())

    def _next_starts(self) -> list[tuple[Start, Run]]:
        """Return the starts with their runs: a run may be gone before its units start, and refuse them."""
        return [(start, self._dispatcher.runs[start.unit.run_id].run) for start in self._dispatcher.next_starts()]

    async def _begin(self, starts: Sequence[tuple[Start, Run]]) -> None:
        """Start the units that the dispatcher has chosen, once its decisions are recorded."""
        now = self._clock.now_seconds()
        await self._begin_runs(starts)
        await self._allocations.keep()
        for choice in self._dispatcher.take_scheduler_choices():
            seconds = choice.simulated_seconds, choice.bound_seconds
            await self._runs.plan(choice.run_id, choice.scheduler, *seconds, choice.reason)
        for start, run in starts:
            self._failed_time.begun(start.slots[0], run.tenant, now)
            attempt = self._dispatcher.n_attempts(run.run_id, start.unit.trial_id) + 1
            await self._executor.start(order_of(start, run.seed, lease_number=self._lease.number, attempt=attempt))

    async def _begin_runs(self, starts: Sequence[tuple[Start, Run]]) -> None:
        """Record which runs begin with these starts, before the decisions about them: no placement precedes its run."""
        now = self._clock.now_seconds()
        for run_id in dict.fromkeys(run.run_id for _, run in starts):
            open_run = self._dispatcher.runs.get(run_id)
            if open_run is not None and open_run.begin(now):
                await self._runs.start(run_id)

    async def _handle_messages(self, timeout_seconds: float) -> bool:
        """Wait for a message, then handle all that have arrived, since slots and runs often change together; return
        whether there were any. Of very many messages some wait for the next turn: slots are idle meanwhile."""
        message, n_handled = await self._inbox.next(timeout_seconds), 0
        while message is not None:
            await self._handle(message)
            n_handled += 1
            message = await self._inbox.next(0.0) if n_handled < MESSAGES_A_TURN else None
        return n_handled > 0

    async def _handle(self, message: Message) -> None:
        match message:
            case UnitRecorded(order, seconds, pruned_bytes, failures):
                self._dispatcher.recorded(order.slot_id, seconds, failures)
                for one in order.by_trial():
                    if one.unit.trial_id not in failures:
                        self._procedures.recorded(one.alone()[-1].unit)
                await self._perform(await self._retries.members_failed(message, self._clock.now_seconds()))
                self._retries.recorded(order.unit.run_id)
                await self._reclaiming.add(pruned_bytes)
                await self._close_drained(order)
            case Piloted(order, train_seconds, evaluate_seconds, sample):
                self._dispatcher.piloted(order.slot_id, train_seconds, evaluate_seconds, sample)
                self._arms.timed(order.unit.run_id)
                await self._close_drained(order)
            case UnitFailed():
                await self._perform(await self._retries.failed(message, self._clock.now_seconds()))
                await self._close_drained(message.order)
            case SlotStuck():
                effects = await self._retries.stuck(message, self._clock.now_seconds())
                await self._perform([*effects, OpenSlots()])
            case SlotReady(slot_id):
                self._dispatcher.board.ready(slot_id)
                await self._slots.explain(slot_id, None)
            case SlotWaiting(slot_id, reason):
                self._dispatcher.board.waiting(slot_id)
                await self._slots.explain(slot_id, reason)
            case RunChanged(run_id):
                self._reading.report(run_id)
            case SlotsChanged():
                await self._open_slots()
                await self._instances.count_local()
            case InstanceBilled() | InstanceUp() | InstanceDown() | InstanceFailed() | ProgramSaid():
                await self._perform(await self._instances.heard(message))
            case TenantsChanged():
                await self._arms.renew_tenancy()
            case StopRequested():
                self._is_stopping = True

    async def _open_slots(self) -> None:
        await self._executor.open(self._dispatcher.board.keep(await self._slots.all_slots()))

    async def _close_drained(self, order: Order) -> None:
        if not self._dispatcher.board.active() >= set(order.slot_ids):
            await self._open_slots()

    async def _cancel(self, slot_ids: Iterable[int]) -> None:
        for slot_id in slot_ids:
            await self._executor.cancel(slot_id)

    async def _fail_runs(self) -> None:
        """End the runs that cannot be served; others go on."""
        for run_id, reason in (self._procedures.take_failed() | self._dispatcher.take_failed()).items():
            await self._arms.fail(run_id, reason)
            await self._perform([CancelUnits(run_id)])

    async def _end_runs(self) -> Work:
        now = self._clock.now_seconds()
        for run_id in self._dispatcher.runs.spent(now):
            self._arms.end_budget(run_id)
            yield CutTraining(run_id)
        await self._arms.end_overdue(now)
        for run_id in self._dispatcher.runs.done():
            await self._lease.confirm()
            if await self._runs.begin_ending(run_id):
                self._arms.drop_run(run_id)
                if not await self._arms.renew(run_id):
                    yield CancelUnits(run_id)
            elif await self._runs.finish(run_id):
                self._arms.drop_run(run_id)
            else:
                self._retries.pause_run(run_id, now)
            yield HandleMessages()

    def _until_next(self) -> float:
        """Count seconds until something is due without a message: a heartbeat, a pause that ends, a due question."""
        now = self._clock.now_seconds()
        if self._reading:
            return 0.0
        waits = [
            self._next_heartbeat - now,
            self._procedures.held_until() - now,
            self._retries.next_end() - now,
            self._planned.next_seconds(now) - now,
            self._settings.heartbeat_seconds,
        ]
        return max(0.0, min(waits))

    async def _keep_lease(self) -> None:
        if self._clock.now_seconds() >= self._next_heartbeat:
            with contextlib.suppress(OutOfSpace):
                await self._lease.heartbeat()
                await self._arms.fail_later()
                await self._failed_time.charge_held()
            await self._tasks.advance()
            if await self._slots.recover():
                await self._open_slots()
            self._next_heartbeat = self._clock.now_seconds() + self._settings.heartbeat_seconds
