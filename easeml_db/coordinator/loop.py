"""The loop: messages, decisions, units for idle slots, and work that waits, in turn.

The coordinator only holds a cache of the tables. The parts of the loop know nothing of it: they return or yield
requests (`effects.py`), and the loop carries them out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from easeml_db.coordinator.crashes import CarriedOver
from easeml_db.coordinator.effects import CancelUnits, CutTraining, Effect, HandleMessages, OpenSlots, Stop, Work
from easeml_db.coordinator.message_handling import handle
from easeml_db.coordinator.orders import order_of
from easeml_db.coordinator.parts import Parts
from easeml_db.coordinator.ports import Ports
from easeml_db.coordinator.settings import Settings
from easeml_db.decisions.hopper.allocation.contract import Start
from easeml_db.errors import OutOfSpace, ServerBusy, ServerUnavailable
from easeml_db.words.run import Run

MESSAGES_A_TURN = 1000


class Coordinator:
    """Serves open runs until it gets the order to stop or loses its lease.

    New and ended runs are handled one statement at a time. Between two statements the units of all other runs continue,
    so no tenant's unit waits for another tenant's runs, however many.
    """

    def __init__(self, ports: Ports, settings: Settings | None = None, carried_over: CarriedOver | None = None) -> None:
        self._ports, self._settings = ports, settings or Settings()
        self._parts = Parts(ports, self._settings, carried_over or CarriedOver())
        self._dispatcher = self._parts.dispatcher
        self._next_heartbeat, self._is_stopping = 0.0, False

    async def serve(self, *, until_idle: bool = False) -> None:
        """Run the loop; with `until_idle` it ends when no run is open. Raises StandbyOnly when the lease is lost."""
        await self._parts.lease.acquire()
        try:
            await self._open_slots()
            await self._parts.instances.take_up()
            await self._carry_out(self._parts.reading.take_up())
            await self._parts.retries.record_crashes(self._ports.clock.now_seconds())
            while not self._is_stopping:
                await self._carry_out(self._waiting_work())  # with messages in its midst
                if until_idle and not (self._dispatcher.runs or self._parts.reading or self._parts.instances):
                    break
                await self._start_units()  # what the policies decide, and units for idle slots
                await self._handle_messages(self._until_next())
                await self._keep_lease()
        except ServerUnavailable:
            await self._ports.executor.close()
            for message in await self._parts.crashes.remember(self._ports.inbox):
                self._parts.failed_time.failed(message.order, self._ports.clock.now_seconds())
            raise
        finally:
            await self._ports.provisioner.close()
            await self._ports.executor.close()
        await self._parts.failed_time.charge_held()
        await self._parts.lease.release()

    async def _carry_out(self, work: Work) -> None:
        """Do work to its end, and the effects that it yields on the way: other units continue wherever it waits."""
        async with contextlib.aclosing(work):
            async for effect in work:
                await self._perform([effect])

    async def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case HandleMessages(wait_seconds):
                    # Record a crash before anything of its trial starts again.
                    if not self._parts.crashes:
                        await self._serve_others(wait_seconds)
                case OpenSlots():
                    await self._open_slots()
                case CancelUnits(run_id):
                    await self._cancel(list(self._dispatcher.board.slots_of(run_id)))
                case CutTraining(run_id):
                    await self._cancel(self._dispatcher.board.training(run_id))
                case Stop():
                    self._is_stopping = True

    async def _waiting_work(self) -> Work:
        """Read changed runs, ask procedures, end what is over: statements and thoughts that may take long."""
        async for effect in self._parts.reading.read_some():
            yield effect
        async for effect in self._parts.procedures.decide(self._ports.clock.now_seconds()):
            yield effect
        await self._parts.reclaiming.add(self._parts.procedures.take_pruned_bytes())
        await self._fail_runs()
        await self._parts.arms.close_ended()
        yield HandleMessages()
        await self._parts.allocations.keep()
        async for effect in self._end_runs():
            yield effect

    async def _start_units(self) -> None:
        await self._parts.retries.end_pauses(self._ports.clock.now_seconds())
        if self._has_no_room():
            return
        await self._parts.allocations.look_up()
        now = self._ports.clock.now_seconds()
        await self._perform(await self._parts.planned.look(now))
        await self._perform(await self._parts.instances.settle(now))
        await self._parts.arms.take_turns(now)
        await self._begin(self._next_starts())
        while await self._parts.arms.open_next(now):
            await self._begin(self._next_starts())
        self._parts.arms.started(now)
        await self._fail_runs()

    async def _serve_others(self, timeout_seconds: float) -> None:
        """Handle what has arrived, fill slots that are idle since then from open arms, and keep the lease."""
        if await self._handle_messages(timeout_seconds) and not self._has_no_room():
            await self._begin(self._next_starts())
        await self._keep_lease()

    def _has_no_room(self) -> bool:
        return self._parts.retries.are_all_paused(self._ports.clock.now_seconds())

    def _next_starts(self) -> list[tuple[Start, Run]]:
        """Return the starts with their runs: a run may be gone before its units start, and refuse them."""
        self._parts.retries.hold_back()
        return [(start, self._dispatcher.runs[start.unit.run_id].run) for start in self._dispatcher.next_starts()]

    async def _begin(self, starts: Sequence[tuple[Start, Run]]) -> None:
        """Start the units that the dispatcher has chosen, once its decisions are recorded."""
        now = self._ports.clock.now_seconds()
        await self._begin_runs(starts)
        await self._parts.allocations.keep()
        for choice in self._dispatcher.take_scheduler_choices():
            seconds = choice.simulated_seconds, choice.bound_seconds
            await self._ports.runs.plan(choice.run_id, choice.scheduler, *seconds, choice.reason)
        for start, run in starts:
            self._parts.failed_time.begun(start.slots[0], run.tenant, now)
            attempt = self._dispatcher.n_attempts(run.run_id, start.unit.trial_id) + 1
            await self._ports.executor.start(
                order_of(start, run.seed, lease_number=self._parts.lease.number, attempt=attempt)
            )

    async def _begin_runs(self, starts: Sequence[tuple[Start, Run]]) -> None:
        """Record which runs begin with these starts, before the decisions about them: no placement precedes its run."""
        now = self._ports.clock.now_seconds()
        for run_id in dict.fromkeys(run.run_id for _, run in starts):
            open_run = self._dispatcher.runs.get(run_id)
            if open_run is not None and open_run.begin(now):
                await self._ports.runs.start(run_id)

    async def _handle_messages(self, timeout_seconds: float) -> bool:
        """Wait for a message, then handle all that have arrived, since slots and runs often change together; return
        whether there were any. Of very many messages some wait for the next turn: slots are idle meanwhile."""
        message, n_handled = await self._ports.inbox.next(timeout_seconds), 0
        while message is not None:
            effects = await handle(message, self._parts, self._ports.slots, self._ports.clock.now_seconds())
            await self._perform(effects)
            n_handled += 1
            message = await self._ports.inbox.next(0.0) if n_handled < MESSAGES_A_TURN else None
        return n_handled > 0

    async def _open_slots(self) -> None:
        await self._ports.executor.open(self._dispatcher.board.keep(await self._ports.slots.all_slots()))

    async def _cancel(self, slot_ids: Iterable[int]) -> None:
        for slot_id in slot_ids:
            await self._ports.executor.cancel(slot_id)

    async def _fail_runs(self) -> None:
        """End the runs that cannot be served; others continue."""
        for run_id, reason in (self._parts.procedures.take_failed() | self._dispatcher.take_failed()).items():
            await self._parts.arms.fail(run_id, reason)
            await self._perform([CancelUnits(run_id)])

    async def _end_runs(self) -> Work:
        now = self._ports.clock.now_seconds()
        for run_id in self._dispatcher.runs.spent(now):
            self._parts.arms.end_budget(run_id)
            yield CutTraining(run_id)
        await self._parts.arms.end_overdue(now)
        for run_id in self._dispatcher.runs.done():
            await self._parts.lease.confirm()
            if await self._ports.runs.begin_ending(run_id):
                self._parts.arms.drop_run(run_id)
                if not await self._parts.arms.renew(run_id):
                    yield CancelUnits(run_id)
            elif await self._ports.runs.finish(run_id):
                self._parts.arms.drop_run(run_id)
            else:
                self._parts.retries.pause_run(run_id, now)
            yield HandleMessages()

    def _until_next(self) -> float:
        """Count seconds until something is due without a message: a heartbeat, a pause that ends, a due question."""
        now = self._ports.clock.now_seconds()
        if self._parts.reading:
            return 0.0
        waits = [
            self._next_heartbeat - now,
            self._parts.procedures.held_until() - now,
            self._parts.procedures.look_seconds(),
            self._parts.retries.next_end() - now,
            self._parts.planned.next_seconds(now) - now,
            self._settings.heartbeat_seconds,
        ]
        return max(0.0, min(waits))

    async def _keep_lease(self) -> None:
        if self._ports.clock.now_seconds() >= self._next_heartbeat:
            with contextlib.suppress(OutOfSpace, ServerBusy):
                await self._parts.lease.heartbeat()
                await self._parts.arms.fail_later()
                await self._parts.failed_time.charge_held()
            await self._ports.tasks.advance()
            if await self._ports.slots.recover():
                await self._open_slots()
            self._next_heartbeat = self._ports.clock.now_seconds() + self._settings.heartbeat_seconds
