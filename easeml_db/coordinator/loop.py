"""The loop: give out units, take in what came of them, keep the lease.

It holds no truth, only a cache of the tables.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from easeml_db.coordinator.allocations import Allocations
from easeml_db.coordinator.arms import Arms
from easeml_db.coordinator.ports import (
    Clock,
    Executor,
    Inbox,
    Member,
    Message,
    Order,
    Piloted,
    RunChanged,
    SlotReady,
    SlotsChanged,
    SlotStuck,
    SlotWaiting,
    Stop,
    Store,
    TenantsChanged,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.coordinator.searches import Searches
from easeml_db.decisions.hopper.dispatch import Dispatch, Dispatcher
from easeml_db.errors import EasemlError, NotFound, OutOfSpace, SlotLost, StaleLease, StandbyOnly, VersionMismatch
from easeml_db.words.training_unit import TrainingUnit, unit_seed

PAUSE_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)  # while a disk is full


@dataclass(frozen=True)
class Settings:
    """How the loop behaves."""

    heartbeat_seconds: float = 2.0
    max_attempts: int = 3
    reclaim_bytes: int = 2 << 20  # pruned bytes that are worth a vacuum, and at least this fraction of the live ones:
    reclaim_fraction: float = 0.1  # a vacuum reads the whole index, so its price grows with them


class Coordinator:
    """Serves open runs until it is told to stop or loses its lease."""

    def __init__(
        self, store: Store, executor: Executor, inbox: Inbox, clock: Clock, settings: Settings | None = None
    ) -> None:
        self._store, self._executor, self._inbox, self._clock = store, executor, inbox, clock
        self._settings = settings or Settings()
        self._dispatcher = Dispatcher()
        self._searches = Searches(store, self._dispatcher)
        self._arms = Arms(store, self._dispatcher, self._searches)
        self._allocations = Allocations(store, self._dispatcher)
        self._lease_number = 0
        self._next_heartbeat = 0.0
        self._bytes_to_reclaim = 0
        self._live_bytes = 0
        self._is_stopping = False
        self._n_pauses = 0  # in a row
        self._paused_until = 0.0

    async def serve(self, *, until_idle: bool = False) -> None:
        """Run the loop; with `until_idle` it ends when no run is open. Raises StandbyOnly when the lease is lost."""
        self._lease_number = await self._store.acquire_lease()
        try:
            await self._open_slots()
            await self._arms.take_up()
            while not self._is_stopping:
                await self._reclaim(await self._searches.decide(self._clock.now_seconds()))
                await self._arms.close_ended()
                await self._allocations.keep()
                await self._end_runs()
                if until_idle and not self._dispatcher.open_runs():
                    break
                await self._give_out()
                await self._take_in_all()
                await self._keep_lease()
        finally:
            await self._executor.close()
        await self._store.release_lease()

    async def _give_out(self) -> None:
        if self._clock.now_seconds() < self._paused_until:
            return
        await self._allocations.look_up()
        units = self._dispatcher.next_units()
        while await self._arms.open_next(self._clock.now_seconds()):
            units += self._dispatcher.next_units()
        await self._allocations.keep()
        for plan in self._dispatcher.new_plans():
            await self._store.plan_run(
                plan.run_id, plan.scheduler, plan.simulated_seconds, plan.bound_seconds, plan.reason
            )
        for chosen in units:
            unit = chosen.unit
            if self._dispatcher.begin_run(unit.run_id, self._clock.now_seconds()):
                await self._store.start_run(unit.run_id)
            await self._executor.start(self._order(chosen))

    def _order(self, chosen: Dispatch) -> Order:
        members = tuple(Member(unit, _seed_of(unit, chosen.run_seed), slot) for unit, slot in chosen.members)
        seed = _seed_of(chosen.unit, chosen.run_seed)
        fence = {"lease_number": self._lease_number, "attempt": chosen.attempt}
        return Order(
            chosen.unit, seed, chosen.slot_id, **fence, members=members, measured_seconds=chosen.measured_seconds
        )

    async def _take_in_all(self) -> None:
        """Wait for a message, then take in all that have arrived: slots and runs often change together."""
        message = await self._inbox.next(self._until_next())
        while message is not None:
            await self._take_in(message)
            message = await self._inbox.next(0.0)

    async def _take_in(self, message: Message) -> None:
        match message:
            case UnitRecorded(order, seconds, pruned_bytes):
                self._dispatcher.recorded(order.slot_id, seconds)
                self._searches.recorded(order.alone()[-1].unit)
                self._n_pauses = 0
                await self._reclaim(pruned_bytes)
                await self._close_drained(order)
            case Piloted(order, train_seconds, evaluate_seconds, sample):
                self._dispatcher.piloted(order.slot_id, train_seconds, evaluate_seconds, sample)
                self._arms.timed(order.unit.run_id)
                await self._close_drained(order)
            case UnitFailed():
                await self._unit_failed(message)
                await self._close_drained(message.order)
            case SlotStuck():
                await self._slot_stuck(message)
            case SlotReady(slot_id):
                self._dispatcher.slot_ready(slot_id)
                await self._store.explain_slot(slot_id, None)
            case SlotWaiting(slot_id, reason):
                self._dispatcher.slot_waiting(slot_id)
                await self._store.explain_slot(slot_id, reason)
            case RunChanged(run_id):
                await self._renew_run(run_id)
            case SlotsChanged():
                await self._open_slots()
            case TenantsChanged():
                await self._arms.renew_tenancy()
            case Stop():
                self._is_stopping = True

    async def _unit_failed(self, message: UnitFailed) -> None:
        order, error = message.order, message.error
        if isinstance(error, OutOfSpace):
            self._dispatcher.refused(order.slot_id, is_counted=False)
            await self._pause(order, error)
        elif isinstance(error, SlotLost):
            self._dispatcher.lost(order.slot_id)
            await self._try_again(order, error)
        elif isinstance(error, StaleLease | NotFound):
            self._dispatcher.refused(order.slot_id)
            await self._check_lease()
            await self._try_again(order, error)
        elif isinstance(error, VersionMismatch):
            raise error  # every unit would fail alike, and no trial is to blame
        elif order.measured_seconds:  # beside others a trial may fail that would not fail alone
            self._dispatcher.refused(order.slot_id, is_counted=False)
        else:
            self._dispatcher.failed(order.slot_id)
            if self._dispatcher.is_known(order.unit.run_id):
                await self._fail_trial(order, str(error))

    async def _try_again(self, order: Order, error: EasemlError) -> None:
        """Offer the unit again, unless it was recorded after all, the run is over, or it came to nothing too often."""
        unit = order.unit
        if not self._dispatcher.is_known(unit.run_id):
            return
        await self._renew_run(unit.run_id)
        n_attempts = self._dispatcher.n_attempts(unit.run_id, unit.trial_id)
        if n_attempts == 0:
            return
        await self._store.note(unit.run_id, unit.trial_id, "retry", f"attempt {n_attempts} came to nothing: {error}")
        if n_attempts >= self._settings.max_attempts:
            self._dispatcher.drop_trial(unit.run_id, unit.trial_id)
            await self._fail_trial(order, f"{n_attempts} attempts came to nothing, the last: {error}")

    async def _pause(self, order: Order, error: EasemlError) -> None:
        """Wait for room on the disk, longer each time; the first time say so, if there is room for that."""
        if self._clock.now_seconds() < self._paused_until:
            return
        if self._n_pauses == 0:
            with contextlib.suppress(OutOfSpace):
                await self._store.note(
                    order.unit.run_id, order.unit.trial_id, "disk full", f"{error}; waiting for room"
                )
        seconds = PAUSE_SECONDS[min(self._n_pauses, len(PAUSE_SECONDS) - 1)]
        self._paused_until = self._clock.now_seconds() + seconds
        self._n_pauses += 1

    async def _slot_stuck(self, message: SlotStuck) -> None:
        """Fence the slots first, then offer their unit elsewhere."""
        order, reason = message.order, message.reason
        for slot_id in message.slot_ids:
            await self._store.lose_slot(slot_id, reason)
            await self._store.note(
                order.unit.run_id, order.unit.trial_id, "slot lost", f"slot {slot_id} is given up: {reason}"
            )
        self._dispatcher.lost(order.slot_id)
        await self._try_again(order, SlotLost(reason))
        await self._open_slots()

    async def _fail_trial(self, order: Order, reason: str) -> None:
        await self._check_lease()
        await self._store.fail_trial(order.unit.run_id, order.unit.trial_id, reason)
        self._searches.trial_changed(order.unit.run_id, order.unit.trial_id)

    async def _open_slots(self) -> None:
        await self._executor.open(self._dispatcher.keep_slots(await self._store.slots()))

    async def _close_drained(self, order: Order) -> None:
        if not all(self._dispatcher.is_active(slot_id) for slot_id in order.slot_ids):
            await self._open_slots()

    async def _renew_run(self, run_id: int) -> None:
        run = await self._store.read_run(run_id)
        if run is not None:
            await self._arms.put_run(run)
            return
        self._arms.drop_run(run_id)
        for slot_id in self._dispatcher.slots_of(run_id):
            await self._executor.cancel(slot_id)

    async def _end_runs(self) -> None:
        now = self._clock.now_seconds()
        for run_id in self._dispatcher.spent_runs(now):
            self._arms.end_budget(run_id)
        await self._arms.end_overdue(now)
        for run_id in self._dispatcher.done_runs():
            await self._check_lease()
            await self._store.finish_run(run_id)
            self._arms.drop_run(run_id)

    def _until_next(self) -> float:
        """Seconds until there is something to do without a message: a heartbeat, the end of a pause, or an arm whose
        rows somebody held."""
        now = self._clock.now_seconds()
        waits = [self._next_heartbeat - now, self._searches.held_until() - now, self._settings.heartbeat_seconds]
        if self._paused_until > now:
            waits.append(self._paused_until - now)
        return max(0.0, min(waits))

    async def _keep_lease(self) -> None:
        if self._clock.now_seconds() >= self._next_heartbeat:
            await self._check_lease()
            with contextlib.suppress(OutOfSpace):
                await self._store.heartbeat()
            if await self._store.recover_slots():
                await self._open_slots()
            self._next_heartbeat = self._clock.now_seconds() + self._settings.heartbeat_seconds

    async def _check_lease(self) -> None:
        if not await self._store.holds_lease():
            raise StandbyOnly("another coordinator took over")

    async def _reclaim(self, n_bytes: int) -> None:
        """Count the bytes of pruned states, and have their space freed once it is worth a vacuum."""
        self._bytes_to_reclaim += n_bytes
        least = max(self._settings.reclaim_bytes, self._settings.reclaim_fraction * self._live_bytes)
        if self._bytes_to_reclaim >= least:
            self._bytes_to_reclaim = 0
            self._live_bytes = await self._store.reclaim()


def _seed_of(unit: TrainingUnit, run_seed: int) -> int:
    return unit_seed(run_seed, unit.trial_number, unit.epoch, unit.partition_number)
