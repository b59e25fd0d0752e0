"""The ports of one simulated process that planned runs need: plans, instances, and what starts these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from easeml_db.coordinator.ports.messages import InstanceBilled, InstanceDown, InstanceFailed, InstanceUp, Message
from easeml_db.decisions.planner.run_plan import RunPlan, StageRecord, planned_stages
from easeml_db.simulated.stores import SimulatedPort
from easeml_db.words.instance import LOCAL, Instance


class SimulatedPlans(SimulatedPort):
    """PlanStore in memory."""

    async def read(self, run_id: int) -> RunPlan | None:
        """Return the plan in force for a run; None if there is none."""
        self._life.call()
        return self._tables.plans_table.read(run_id)

    async def standing(self, run_id: int) -> Mapping[str, Any] | None:
        """Return a run's progress and known times."""
        self._life.call()
        return self._tables.plans_table.standing(run_id)

    async def slot_seconds(self, run_id: int) -> float:
        """Return the slot time of a run's recorded units."""
        self._life.call()
        return sum(u.finished_seconds - u.started_seconds for u in self._tables.units if u.order.unit.run_id == run_id)

    async def keep(self, run_id: int, plan: Mapping[str, Any]) -> None:
        """Record a new plan with its stages."""
        self._life.call()
        before = self._tables.plans_table.plans[run_id]
        renewed = RunPlan(
            **{
                **vars(before), "revision": plan["revision"], "stages": planned_stages(plan["stages"]),
                "made_seconds": self._world.now_seconds, "seconds_mean": plan["seconds_mean"],
                "seconds_p95": plan["seconds_p95"], "cost_before": plan["cost_before"],
            }
        )  # fmt: skip
        self._tables.plans_table.keep(run_id, plan, renewed, self._life.lease_number)

    async def keep_stage(self, run_id: int, stage: StageRecord) -> None:
        """Record a stage as it begins, and again as it ends."""
        self._life.call()
        self._tables.plans_table.keep_stage(run_id, stage, self._life.lease_number)


class SimulatedInstances(SimulatedPort):
    """InstanceStore in memory."""

    async def alive(self) -> list[Instance]:
        """Return all instances that are requested, ready, or being released."""
        self._life.call()
        return list(self._tables.plans_table.instances.values())

    async def local_slots(self) -> int:
        """Return how many slots this server may have."""
        self._life.call()
        return max(self._world.n_base_slots, self._world.max_local_slots)

    async def request(self, run_id: int, provisioner: str, instance_type: str, n: int) -> Sequence[int]:
        """Record a request for instances; return their numbers."""
        self._life.call()
        self._tables.fence(self._life.lease_number)
        plan = self._tables.plans_table.plans[run_id]
        return self._tables.plans_table.request(plan, run_id, provisioner, instance_type, n)

    async def billed(self, instance_id: int) -> None:
        """Record that an instance is paid from now on."""
        self._life.call()
        if self._tables.lease_number == self._life.lease_number:
            self._tables.plans_table.billed(instance_id, self._world.now_seconds)

    async def attach(self, instance_id: int, device: str | None) -> bool:
        """Give a requested instance its slots; return whether there were slots for it."""
        self._life.call()
        self._tables.fence(self._life.lease_number)
        n_local = max(self._world.n_base_slots, self._world.max_local_slots)
        slots = self._tables.plans_table.attach(instance_id, self._world.slots, n_local, self._world.now_seconds)
        if slots is not None:
            self._world.slots = tuple(slots)
        return slots is not None

    async def release(self, instance_id: int) -> None:
        """Return the slots that were taken for an instance, and drain those that were added for it."""
        self._life.call()
        self._tables.fence(self._life.lease_number)
        slots = self._tables.plans_table.release(instance_id, self._world.slots, self._world.n_base_slots)
        self._world.slots = tuple(slots)

    async def end(self, instance_id: int, status: str, cost: float, reason: str | None = None) -> None:
        """Record that an instance is released, or has failed, and remove the slots that were added for it."""
        self._life.call()
        self._tables.fence(self._life.lease_number)
        n_base = self._world.n_base_slots
        self._world.slots = tuple(self._tables.plans_table.end(instance_id, status, cost, self._world.slots, n_base))

    async def keep_call(self, instance_id: int, program: str, outcome: str, output: str) -> None:
        """Record the output of a program."""
        self._life.call()


class SimulatedProvisioner(SimulatedPort):
    """Provisioner in memory: slots of this server are there at once, others come from the world's cloud."""

    async def start(self, instance: Instance) -> None:
        """Start an instance, or find it, and watch it."""
        self._life.call()
        number, cloud, now = instance.instance_id, self._world.cloud, self._world.now_seconds
        if instance.provisioner == LOCAL:
            self._tell(now, InstanceBilled(number))
            self._tell(now, InstanceUp(number))
            return
        rented = cloud.start(instance.request_id)
        if rented.ends_seconds is not None:
            self._tell(now, InstanceFailed(number, "it is gone"))
            return
        self._tell(rented.billed_seconds, InstanceBilled(number))
        if rented.is_failing:
            self._world.at(rented.ready_seconds, lambda: self._die(instance, "it did not come up"))
            return
        self._tell(rented.ready_seconds, InstanceUp(number))
        if rented.dies_seconds is not None:
            self._world.at(rented.dies_seconds, lambda: self._die(instance, "it died"))

    async def stop(self, instance: Instance) -> None:
        """Stop an instance, whether it is ready or not."""
        self._life.call()
        if instance.provisioner != LOCAL:
            self._world.cloud.stop(instance.request_id)
        self._tell(self._world.now_seconds, InstanceDown(instance.instance_id))

    async def close(self) -> None:
        """Watch nothing any more."""

    def _tell(self, seconds: float, message: Message) -> None:
        if seconds <= self._world.now_seconds:
            self._life.deliver(message)
        else:
            self._world.at(seconds, lambda: self._life.deliver(message))

    def _die(self, instance: Instance, reason: str) -> None:
        """Let the provider take an instance away: its billing ends, and its sessions break."""
        rented = self._world.cloud.instances[instance.request_id]
        if rented.ends_seconds is None:
            rented.ends_seconds = self._world.now_seconds
        for slot in self._world.slots:
            if slot.instance_id == instance.instance_id and not self._life.is_dead:
                self._world.lose_slot(slot.slot_id, down_seconds=1e9)
        self._life.deliver(InstanceFailed(instance.instance_id, reason))
