"""The loop: give out units, take in what came of them, keep the lease.

It holds no truth, only a cache of the tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from easeml_db.errors import NotFound, SlotLost, StaleLease, StandbyOnly
from easeml_db.hopper.dispatch import Dispatcher
from easeml_db.ports import (
    Clock,
    Executor,
    Inbox,
    Message,
    Order,
    RunChanged,
    SlotReady,
    SlotsChanged,
    Stop,
    Store,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.training_unit import unit_seed


@dataclass(frozen=True)
class Settings:
    """How the loop behaves."""

    heartbeat_seconds: float = 2.0
    max_attempts: int = 3
    reclaim_bytes: int = 64 << 20


class Coordinator:
    """Serves open runs until it is told to stop or loses its lease."""

    def __init__(
        self, store: Store, executor: Executor, inbox: Inbox, clock: Clock, settings: Settings | None = None
    ) -> None:
        self._store, self._executor, self._inbox, self._clock = store, executor, inbox, clock
        self._settings = settings or Settings()
        self._dispatcher = Dispatcher()
        self._lease_number = 0
        self._next_heartbeat = 0.0
        self._bytes_to_reclaim = 0
        self._is_stopping = False

    async def serve(self, *, until_idle: bool = False) -> None:
        """Run the loop; with `until_idle` it ends when no run is open. Raises StandbyOnly when the lease is lost."""
        self._lease_number = await self._store.acquire_lease()
        try:
            await self._executor.open(await self._store.slots())
            for run in await self._store.open_runs():
                self._dispatcher.put_run(run)
            while not self._is_stopping:
                await self._end_runs()
                if until_idle and not self._dispatcher.open_runs():
                    break
                await self._give_out()
                message = await self._inbox.next(self._until_heartbeat())
                if message is not None:
                    await self._take_in(message)
                await self._keep_lease()
        finally:
            await self._executor.close()
        await self._store.release_lease()

    async def _give_out(self) -> None:
        for chosen in self._dispatcher.next_units():
            unit = chosen.unit
            if unit.step == 0:
                await self._store.start_run(unit.run_id)
            seed = unit_seed(chosen.run_seed, unit.trial_number, unit.epoch, unit.partition_number)
            await self._executor.start(Order(unit, seed, chosen.slot_id, self._lease_number, chosen.attempt))

    async def _take_in(self, message: Message) -> None:
        match message:
            case UnitRecorded(order, seconds, state_bytes):
                self._dispatcher.recorded(order.slot_id, seconds)
                await self._reclaim(state_bytes)
            case UnitFailed():
                await self._unit_failed(message)
            case SlotReady(slot_id):
                self._dispatcher.slot_ready(slot_id)
            case RunChanged(run_id):
                await self._renew_run(run_id)
            case SlotsChanged():
                await self._executor.open(await self._store.slots())
            case Stop():
                self._is_stopping = True

    async def _unit_failed(self, message: UnitFailed) -> None:
        unit, error = message.order.unit, message.error
        if isinstance(error, SlotLost):
            n_attempts = self._dispatcher.lost(message.order.slot_id)
            if not self._dispatcher.is_known(unit.run_id):
                return
            await self._store.note(unit.run_id, unit.trial_id, "retry", f"attempt {n_attempts} was lost: {error}")
            if n_attempts >= self._settings.max_attempts:
                self._dispatcher.drop_trial(unit.trial_id)
                await self._store.fail_trial(unit.run_id, unit.trial_id, f"{n_attempts} attempts were lost: {error}")
            return
        self._dispatcher.failed(message.order.slot_id)
        if isinstance(error, StaleLease | NotFound):
            if not await self._store.holds_lease():
                raise StandbyOnly("another coordinator took over")
            await self._renew_run(unit.run_id)
        elif self._dispatcher.is_known(unit.run_id):
            await self._store.fail_trial(unit.run_id, unit.trial_id, str(error))

    async def _renew_run(self, run_id: int) -> None:
        run = await self._store.read_run(run_id)
        if run is not None:
            self._dispatcher.put_run(run)
            return
        self._dispatcher.drop_run(run_id)
        for slot_id in self._dispatcher.slots_of(run_id):
            await self._executor.cancel(slot_id)

    async def _end_runs(self) -> None:
        now = self._clock.now_seconds()
        for run in self._dispatcher.open_runs():
            started = run.started_seconds if run.started_seconds is not None else now
            if run.max_seconds is not None and now >= started + run.max_seconds:
                self._dispatcher.end_budget(run.run_id)
            if self._dispatcher.is_done(run.run_id):
                await self._store.finish_run(run.run_id)
                self._dispatcher.drop_run(run.run_id)

    def _until_heartbeat(self) -> float:
        return max(0.0, min(self._next_heartbeat - self._clock.now_seconds(), self._settings.heartbeat_seconds))

    async def _keep_lease(self) -> None:
        if self._clock.now_seconds() >= self._next_heartbeat:
            await self._store.heartbeat()
            self._next_heartbeat = self._clock.now_seconds() + self._settings.heartbeat_seconds

    async def _reclaim(self, n_bytes: int) -> None:
        self._bytes_to_reclaim += n_bytes
        if self._bytes_to_reclaim >= self._settings.reclaim_bytes:
            self._bytes_to_reclaim = 0
            await self._store.reclaim()
