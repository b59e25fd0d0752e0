"""The only interfaces between the coordinator and the outside world, a module for each subject.

    messages.py      orders, and the messages that arrive
    lease.py         who may write
    slots.py         where units run
    runs.py          runs, trials, and the history of a run
    tenancy.py       arms, priors, beliefs, and the policy's memory
    searches.py      what procedures see and decide
    answering.py     long computations, beside the loop
    allocations.py   profiles of devices, and who got which of them
    plans.py         what is planned for runs
    instances.py     instances that bring slots, and what starts them
    space.py         the space of pruned states
    tasks.py         tasks whose examples change
    executor.py      what runs units
    inbox.py clock.py

The coordinator knows nothing else, so it runs alike on PostgreSQL and on a simulated clock. `tests/conformance` checks
every implementation against these protocols.
"""

from __future__ import annotations

from dataclasses import dataclass

from easeml_db.coordinator.ports.allocations import AllocationStore
from easeml_db.coordinator.ports.answering import Answering
from easeml_db.coordinator.ports.clock import Clock
from easeml_db.coordinator.ports.executor import Executor
from easeml_db.coordinator.ports.inbox import Inbox
from easeml_db.coordinator.ports.instances import InstanceStore, Provisioner
from easeml_db.coordinator.ports.lease import LeaseStore
from easeml_db.coordinator.ports.plans import PlanStore
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.coordinator.ports.searches import SearchStore
from easeml_db.coordinator.ports.slots import SlotStore
from easeml_db.coordinator.ports.space import StateSpace
from easeml_db.coordinator.ports.tasks import TaskStore
from easeml_db.coordinator.ports.tenancy import TenancyStore


@dataclass(frozen=True)
class Ports:
    """The ports of one world, which a coordinator gets."""

    lease: LeaseStore
    slots: SlotStore
    runs: RunStore
    tenancy: TenancyStore
    searches: SearchStore
    answering: Answering
    allocations: AllocationStore
    plans: PlanStore
    instances: InstanceStore
    provisioner: Provisioner
    space: StateSpace
    tasks: TaskStore
    executor: Executor
    inbox: Inbox
    clock: Clock
