"""The life of instances: requested, started, given slots, released, stopped.

An instance is in the tables before its program is called, and stays there until it is gone for certain. So a
coordinator that takes over finds all instances, starts none twice and forgets none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import replace

from easeml_db.coordinator.effects import Effect, OpenSlots
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.ports.clock import Clock
from easeml_db.coordinator.ports.instances import InstanceStore, Provisioner
from easeml_db.coordinator.ports.messages import (
    InstanceBilled,
    InstanceDown,
    InstanceFailed,
    InstanceUp,
    ProgramSaid,
)
from easeml_db.decisions.hopper.dispatch.slot_board import SlotBoard
from easeml_db.errors import NotFound
from easeml_db.words.instance import Instance

InstanceMessage = InstanceBilled | InstanceUp | InstanceDown | InstanceFailed | ProgramSaid
RECORD_AGAIN_SECONDS = 0.5
STOP_AGAIN_SECONDS = 10.0  # an instance that cannot be stopped costs money: keep trying


class InstanceKeeping:
    """The coordinator's view of instances; `failures` are reported to the planner of their run."""

    def __init__(
        self, store: InstanceStore, provisioner: Provisioner, lease: Lease, board: SlotBoard, clock: Clock
    ) -> None:
        self._store, self._provisioner, self._lease = store, provisioner, lease
        self._board, self._clock = board, clock
        self._instances: dict[int, Instance] = {}
        self._stopping: dict[int, float] = {}  # stop requested; until when it is not requested again
        self._failures: dict[int, list[str]] = {}  # by run
        self._n_in_a_row: dict[int, int] = {}  # failures since an instance came up, by run
        self._unrecorded: list[InstanceMessage] = []  # what an open transaction keeps from being recorded
        self._unrecorded_until = 0.0
        self.n_local = 0  # slots that this server may have, those added for planned runs among them
        self._ended_cost: dict[int, float] = {}  # by run, of instances that ended since we took over
        self._since: dict[int, float] = {}  # when each was requested, came up, or was taken over

    async def take_up(self) -> None:
        """Find the instances of an earlier coordinator, and continue each in its present status."""
        await self.count_local()
        for instance in await self._store.alive():
            self._instances[instance.instance_id] = instance
            self._since[instance.instance_id] = self._clock.now_seconds()
            if instance.status != "releasing":
                await self._provisioner.start(instance)

    # Instances by run

    def __bool__(self) -> bool:
        return bool(self._instances)

    def runs(self) -> set[int]:
        """Return the runs that have any."""
        return {instance.run_id for instance in self._instances.values()}

    def of(self, run_id: int) -> list[Instance]:
        """Return the requested and ready instances of a run, oldest first."""
        return [one for one in self._instances.values() if one.run_id == run_id and one.status != "releasing"]

    def age(self, instance: Instance, now_seconds: float) -> float:
        """Return for how long an instance has been in its status, since we took over at most."""
        return now_seconds - self._since.get(instance.instance_id, now_seconds)

    def n_slots(self, provisioner: str, *, without: int) -> dict[int, int]:
        """Return how many slots the instances of a provisioner have, by run, except for one run."""
        slots_by_run: dict[int, int] = {}
        for instance in self._instances.values():
            if instance.provisioner == provisioner and instance.run_id != without:
                slots_by_run[instance.run_id] = slots_by_run.get(instance.run_id, 0) + instance.n_slots
        return slots_by_run

    def cost(self, run_id: int, now_seconds: float) -> float:
        """Return what the instances of a run would have cost since we took over if all ended now."""
        alive = [instance.cost_at(now_seconds) for instance in self._instances.values() if instance.run_id == run_id]
        return self._ended_cost.get(run_id, 0.0) + sum(alive)

    def forget_cost(self, run_id: int) -> None:
        """Count the cost of a run's instances only from now on, because the earlier cost has been read."""
        self._ended_cost.pop(run_id, None)

    def n_busy(self, instance: Instance) -> int:
        """Count the slots of an instance that work."""
        return self._board.n_busy(instance.slot_ids)

    def take_failures(self, run_id: int) -> list[str]:
        """Return why instances of a run failed since the last call."""
        return self._failures.pop(run_id, [])

    def n_failures(self, run_id: int) -> int:
        """Count the failures of a run's instances since one came up."""
        return self._n_in_a_row.get(run_id, 0)

    async def count_local(self) -> None:
        """Read how many slots this server may have."""
        self.n_local = await self._store.local_slots()

    # Requests and releases

    async def request(self, run_id: int, provisioner: str, instance_type: str, n: int) -> None:
        """Request instances for a run and start them."""
        numbers: Collection[int] = ()
        with contextlib.suppress(NotFound):  # rows are held: the next look asks again
            numbers = await self._lease.write(self._store.request(run_id, provisioner, instance_type, n))
        await self._read(numbers)
        for number in numbers:
            self._since[number] = self._clock.now_seconds()
            await self._provisioner.start(self._instances[number])

    async def release(self, instance_ids: Collection[int]) -> list[Effect]:
        """Give instances no more units, and stop each once it is idle."""
        for instance_id in instance_ids:
            with contextlib.suppress(NotFound):
                await self._lease.write(self._store.release(instance_id))
        if not instance_ids:
            return []
        await self._read(instance_ids)
        return [OpenSlots()]

    async def settle(self, now_seconds: float) -> list[Effect]:
        """Stop the released instances whose units have ended, and record again what the lock of another
        transaction prevented.
        """
        effects: list[Effect] = []
        if self._unrecorded_until <= now_seconds:
            unrecorded, self._unrecorded = self._unrecorded, []
            for message in unrecorded:
                effects += await self.heard(message)
        for instance in list(self._instances.values()):
            is_due = instance.status == "releasing" and self._stopping.get(instance.instance_id, 0.0) <= now_seconds
            if is_due and not self.n_busy(instance):
                if instance.instance_id in self._stopping:  # its programs may have been mended, or be there again
                    await self._read([instance.instance_id])
                    instance = self._instances[instance.instance_id]
                self._stopping[instance.instance_id] = float("inf")
                await self._provisioner.stop(instance)
        return effects

    def moments(self) -> list[float]:
        """Return when to stop an instance again, or to repeat a record that failed."""
        return [*self._stopping.values(), *([self._unrecorded_until] if self._unrecorded else [])]

    # Messages about instances

    async def heard(self, message: InstanceMessage) -> list[Effect]:
        """Record a message about an instance; later if its rows are locked."""
        try:
            return await self._heard(message)
        except NotFound:
            self._unrecorded.append(message)
            self._unrecorded_until = self._clock.now_seconds() + RECORD_AGAIN_SECONDS
            return []

    async def _heard(self, message: InstanceMessage) -> list[Effect]:
        """Record a message about an instance. Ignore one about an instance that is gone."""
        instance = self._instances.get(message.instance_id)
        if isinstance(message, ProgramSaid):
            await self._store.keep_call(message.instance_id, message.program, message.outcome, message.output)
        elif instance is None:
            return []
        elif isinstance(message, InstanceBilled):
            await self._store.billed(instance.instance_id)
            if instance.billed_seconds is None:
                self._instances[instance.instance_id] = replace(instance, billed_seconds=self._clock.now_seconds())
        elif isinstance(message, InstanceUp):
            return await self._is_up(instance, message.device)
        elif isinstance(message, InstanceDown):
            return await self._end(instance, "released")
        elif message.is_stopping:
            self._stopping[instance.instance_id] = self._clock.now_seconds() + STOP_AGAIN_SECONDS
            return await self.release([instance.instance_id] if instance.status != "releasing" else [])
        else:
            self._failed(instance, message.reason)
            return await self._end(instance, "failed", message.reason)
        return []

    def _failed(self, instance: Instance, reason: str) -> None:
        self._failures.setdefault(instance.run_id, []).append(reason)
        self._n_in_a_row[instance.run_id] = self.n_failures(instance.run_id) + 1

    async def _is_up(self, instance: Instance, device: str | None) -> list[Effect]:
        if instance.status != "requested":
            return []
        if not await self._lease.write(self._store.attach(instance.instance_id, device)):
            self._failed(instance, "no slot of this server is to be had")
            return await self.release([instance.instance_id])
        self._n_in_a_row.pop(instance.run_id, None)
        self._since[instance.instance_id] = self._clock.now_seconds()
        await self._read([instance.instance_id])
        return [OpenSlots()]

    async def _read(self, instance_ids: Collection[int]) -> None:
        """Read instances from the tables again, so that slots taken for them leave the shared slots."""
        for instance in await self._store.alive():
            if instance.instance_id in instance_ids:
                self._instances[instance.instance_id] = instance

    async def _end(self, instance: Instance, status: str, reason: str | None = None) -> list[Effect]:
        cost = instance.cost_at(self._clock.now_seconds())
        await self._lease.write(self._store.end(instance.instance_id, status, cost, reason))
        self._instances.pop(instance.instance_id, None)
        self._stopping.pop(instance.instance_id, None)
        self._since.pop(instance.instance_id, None)
        self._ended_cost[instance.run_id] = self._ended_cost.get(instance.run_id, 0.0) + cost
        return [OpenSlots()]
