"""How many instances a planned run should have now: what its stage needs, limited by what is available to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from easeml_db.coordinator.arm_opening import ArmOpening
from easeml_db.coordinator.instance_keeping import InstanceKeeping
from easeml_db.coordinator.ports.plans import PlanStore
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.decisions.planner.job import StageKey
from easeml_db.decisions.planner.prices import InstanceType
from easeml_db.decisions.planner.replanning import Circumstances
from easeml_db.decisions.planner.run_plan import PlannedStage, RunPlan
from easeml_db.decisions.planner.shares import slots_to_be_had
from easeml_db.errors import InvalidData
from easeml_db.words.instance import Instance


@dataclass(frozen=True)
class Size:
    """A number of instances of a type. `is_short`: the plan wants more than are available; `is_shared`: none is
    available for the run alone, so it trains on slots that all runs share.
    """

    instance_type: str
    n_instances: int
    is_short: bool = False
    is_shared: bool = False


class Sizing:
    """Decides from the plan, the tenants and the existing instances."""

    def __init__(self, dispatcher: Dispatcher, arms: ArmOpening, instances: InstanceKeeping) -> None:
        self._dispatcher, self._arms, self._instances = dispatcher, arms, instances
        self._work_costs: dict[int, float] = {}  # of units, by run, where only work is paid

    # The size that a run should have

    def size(
        self, plan: RunPlan, stage: PlannedStage, keys: Mapping[StageKey, int], n_seen: int, cap: int | None
    ) -> Size:
        """Return the instances that a run should have in a stage."""
        instance = type_named(plan, stage.instance_type)
        most = self._n_available(plan) // instance.n_slots
        if most < 1 and plan.is_local:
            return Size(instance.name, 0, is_shared=True)
        n_planned = min(stage.n_instances, stage.n_instances if cap is None else max(cap, 1))
        n_needed = min(n_planned, self._early(plan, stage, instance, sum(keys.values()), n_seen))
        return Size(instance.name, min(n_needed, max(most, 0)), is_short=most < n_planned)

    def _early(self, plan: RunPlan, stage: PlannedStage, instance: InstanceType, n_left: int, n_seen: int) -> int:
        """Return how many instances a stage in its last trials needs, and the stage after it."""
        following = plan.after(stage)
        if n_seen < stage.n_trials or not n_left:
            return stage.n_instances
        n_next = following.n_instances if following is not None and following.instance_type == instance.name else 1
        return max(instance.n_instances(n_left * stage.width), n_next, 1)

    def _n_available(self, plan: RunPlan) -> int:
        """Return how many slots a run may have of its provisioner."""
        tenant = self._dispatcher.runs[plan.run_id].run.tenant
        taken = self._instances.n_slots(plan.provisioner, without=plan.run_id)
        runs, limit = self._dispatcher.runs, self._dispatcher.limits.of(tenant, default=0) or None
        n_of_tenant = sum(n for run_id, n in taken.items() if run_id in runs and runs[run_id].run.tenant == tenant)
        if plan.is_local:
            n_local = self._instances.n_local
            weights = {name: self._arms.weight(name) for name in runs.tenants()}
            share = slots_to_be_had(n_local, weights, tenant, n_taken=n_of_tenant, max_slots=limit)
            return min(share, n_local - sum(taken.values()))
        most = math.inf if plan.max_slots is None else plan.max_slots - sum(taken.values())
        return int(min(most, math.inf if limit is None else limit - n_of_tenant, 1 << 20))

    # Instances up, missing and surplus

    def n_up(self, run_id: int) -> int:
        """Count the instances of a run that are ready."""
        return sum(instance.status == "ready" for instance in self._instances.of(run_id))

    def n_slots_up(self, run_id: int) -> int:
        """Count the slots of these."""
        return sum(instance.n_slots for instance in self._instances.of(run_id) if instance.status == "ready")

    def n_missing(self, run_id: int, size: Size) -> int:
        """Count the instances that are to be requested."""
        mine = self._instances.of(run_id)
        return size.n_instances - sum(instance.instance_type == size.instance_type for instance in mine)

    def surplus(self, run_id: int, size: Size) -> list[int]:
        """Return the instances to release: those of another type first, then those that cost nothing yet, then those
        with the least work under way, then the oldest, which have outlived a minimum charge.
        """
        mine = self._instances.of(run_id)
        others = [instance.instance_id for instance in mine if instance.instance_type != size.instance_type]
        same = sorted((instance for instance in mine if instance.instance_type == size.instance_type), key=self._worth)
        return others + [instance.instance_id for instance in same[: max(0, len(same) - size.n_instances)]]

    def _worth(self, instance: Instance) -> tuple[bool, int, int]:
        return instance.billed_seconds is not None, self._instances.n_busy(instance), instance.instance_id

    def n_affordable(self, plan: RunPlan, instance_type: str, n: int, money: float) -> int:
        """Return how many of `n` further instances a run can pay."""
        instance = type_named(plan, instance_type)
        least = instance.minimum_seconds * instance.price_per_second
        if money <= 0:
            return 0
        return min(n, int(money / least)) if least > 0 and math.isfinite(money) else n

    def circumstances(
        self, plan: RunPlan, stage: PlannedStage, cost: float, now_seconds: float, cap: int | None
    ) -> Circumstances:
        """Return what a run has and may have, as input for planning the rest of it."""
        slots = self._n_available(plan)
        most = {kind.name: max(slots, 1 if plan.is_local else 0) // kind.n_slots for kind in plan.prices.types}
        if cap is not None:
            most[stage.instance_type] = min(most[stage.instance_type], cap)
        mine = self._instances.of(plan.run_id)
        held = [instance for instance in mine if instance.instance_type == stage.instance_type]
        # Slots of this server have their sessions already, except added ones.
        young = [] if plan.is_local else held
        ages = [(instance.status == "ready", self._instances.age(instance, now_seconds)) for instance in young]
        billed = [max(0.0, now_seconds - begin) for instance in held if (begin := instance.billed_seconds) is not None]
        return Circumstances(now_seconds, cost, stage.instance_type, len(held), most, tuple(ages), tuple(billed))

    # Where only work is paid

    async def read_work(self, plan: RunPlan, plans: PlanStore) -> None:
        """Read what the units of a run cost."""
        paid = [instance_type for instance_type in plan.prices.types if instance_type.is_per_function]
        if paid:
            seconds = await plans.slot_seconds(plan.run_id)
            self._work_costs[plan.run_id] = seconds * paid[0].price_per_slot_second

    def work_cost(self, run_id: int) -> float:
        """Return what the units of a run cost when that was last read."""
        return self._work_costs.get(run_id, 0.0)


def type_named(plan: RunPlan, name: str) -> InstanceType:
    """Return an instance type of the plan's price list. Raises InvalidData where the list has it no more."""
    for instance_type in plan.prices.types:
        if instance_type.name == name:
            return instance_type
    raise InvalidData(f"price list {plan.prices.name} has no instance type {name} any more, which the plan needs")
