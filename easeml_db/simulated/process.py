"""One coordinator process in a simulated world: its ports, each a class of its own, over one life."""

from __future__ import annotations

from easeml_db.coordinator.ports import Ports
from easeml_db.coordinator.ports.messages import Message
from easeml_db.simulated.executor import SimulatedExecutor
from easeml_db.simulated.life import Life
from easeml_db.simulated.plan_stores import SimulatedInstances, SimulatedPlans, SimulatedProvisioner
from easeml_db.simulated.stores import (
    SimulatedAllocations,
    SimulatedAnswering,
    SimulatedLease,
    SimulatedPort,
    SimulatedRuns,
    SimulatedSearches,
    SimulatedSlots,
    SimulatedStateSpace,
    SimulatedTasks,
    SimulatedTenancy,
)
from easeml_db.simulated.world import SimulatedWorld


class SimulatedInbox(SimulatedPort):
    """Inbox in memory."""

    async def next(self, timeout_seconds: float) -> Message | None:
        """Return the next message, or None after the timeout; meanwhile the clock moves."""
        self._life.call()
        if not self._life.inbox and timeout_seconds > 0:
            await self._world.time.wait(self._life, timeout_seconds)
        return self._life.inbox.popleft() if self._life.inbox else None


class SimulatedClock(SimulatedPort):
    """Clock in memory."""

    def now_seconds(self) -> float:
        """Return the seconds since the world began."""
        return self._world.time.now_seconds


class SimulatedProcess(Life):
    """The ports of one coordinator process, and its place in the world."""

    def __init__(self, world: SimulatedWorld, dies_at_call: int | None = None) -> None:
        super().__init__(world, dies_at_call)
        self.executor = SimulatedExecutor(self)
        self.ports = Ports(
            lease=SimulatedLease(self),
            slots=SimulatedSlots(self),
            runs=SimulatedRuns(self),
            tenancy=SimulatedTenancy(self),
            searches=SimulatedSearches(self),
            answering=SimulatedAnswering(self),
            allocations=SimulatedAllocations(self),
            plans=SimulatedPlans(self),
            instances=SimulatedInstances(self),
            provisioner=SimulatedProvisioner(self),
            space=SimulatedStateSpace(self),
            tasks=SimulatedTasks(self),
            executor=self.executor,
            inbox=SimulatedInbox(self),
            clock=SimulatedClock(self),
        )
        world.enter(self)

    def break_session(self, slot_id: int) -> None:
        """Lose a session."""
        self.executor.break_session(slot_id)
