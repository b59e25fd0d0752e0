"""What tests do in any world besides calling the ports; a further engine is one more class."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from easeml_db.coordinator.ports import Ports
from easeml_db.coordinator.ports.messages import (
    Member,
    Message,
    Order,
    Piloted,
    RunChanged,
    SlotReady,
    SlotsChanged,
    TenantsChanged,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.decisions.tenancy.opening import Opening, Standing
from easeml_db.decisions.tenancy.selector import PolicyDecision
from easeml_db.words.run import Run
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import unit_at

N_PARTITIONS, MAX_EPOCHS = 2, 2
PATIENCE_SECONDS = 120.0  # for a message, on a machine with much else to do
SILENCE_SECONDS = 0.5  # after which a message that must not come has not come


class World(ABC):
    """The ports, and what tests do besides calling them: users ask for runs, things break, a coordinator takes over."""

    ports: Ports
    patience_seconds = PATIENCE_SECONDS

    @property
    @abstractmethod
    def lease_number(self) -> int:
        """The lease that the ports acquired last."""

    @abstractmethod
    def opened(self) -> Any:
        """Open the ports, and close them at the end."""

    def play(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test in an event loop of its own, between opening the ports and closing them."""

        async def play() -> None:
            async with self.opened():
                await test

        asyncio.run(play())

    @abstractmethod
    def ask_for_run(self, *, is_searched: bool = False) -> int:
        """Ask for a run of two arms with a trial each, of two partitions and two epochs; return its number."""

    @abstractmethod
    def ask_for_trees(self) -> int:
        """Ask for a run of one trial that takes both partitions at once; return its number."""

    @abstractmethod
    def ask_for_alike(self) -> int:
        """Ask for a run of three trials that may share a batch; return its number."""

    @abstractmethod
    def ask_for_plan(self) -> int:
        """Ask for a run that follows a plan of one stage on two slots of this server; return its number."""

    @abstractmethod
    def cancel_run(self, run_id: int) -> None:
        """Cancel a run."""

    @abstractmethod
    def resume_run(self, run_id: int) -> None:
        """Resume a cancelled run."""

    @abstractmethod
    def drop_run(self, run_id: int) -> None:
        """Remove a run and all that hangs on it."""

    @abstractmethod
    def pause_trials(self, run_id: int) -> None:
        """Put all trials where they stand after an epoch of a search that lets them wait there."""

    @abstractmethod
    def end_trials(self, run_id: int) -> None:
        """Put all trials where they stand at their end."""

    @abstractmethod
    def held(self, run_id: int) -> AbstractContextManager[None]:
        """Hold the rows of a run, as a user's transaction does."""

    @abstractmethod
    def take_over(self) -> None:
        """Let another coordinator draw the lease."""

    @abstractmethod
    def break_session(self, slot_id: int) -> None:
        """End the session of a slot."""

    @abstractmethod
    def run_status(self, run_id: int) -> str:
        """Return the status of a run."""

    @abstractmethod
    def trials(self, run_id: int) -> list[tuple[str, int]]:
        """Return status and progress of all trials, by number."""

    @abstractmethod
    def units(self, run_id: int) -> list[tuple[int, str, int, int]]:
        """Return trial, kind, epoch and partition of all recorded units."""

    @abstractmethod
    def events(self, run_id: int) -> list[str]:
        """Return the kinds of the events in a run's history."""

    @abstractmethod
    def charged(self, tenant: str) -> float:
        """Return the slot seconds of units that failed or were cancelled, for which a tenant was charged."""

    @abstractmethod
    def n_beliefs(self, run_id: int) -> int:
        """Count the arms of a run about which beliefs are recorded."""

    @abstractmethod
    def n_allocations(self, run_id: int) -> int:
        """Count the trial groups that are recorded."""

    @abstractmethod
    def plan(self, run_id: int) -> str | None:
        """Return the scheduler that a run was last planned with."""

    @abstractmethod
    def set_policy(self, policy: str) -> None:
        """Choose another tenancy policy."""

    # What tests ask of ports again and again

    async def message(self) -> Message:
        """Return the next message that is not about what users change."""
        message = await self.ports.inbox.next(self.patience_seconds)
        while isinstance(message, RunChanged | TenantsChanged | SlotsChanged):
            message = await self.ports.inbox.next(self.patience_seconds)
        assert message is not None, "no message came"
        return message

    async def silence(self) -> None:
        """Check that no message comes but about what users change."""
        message = await self.ports.inbox.next(SILENCE_SECONDS)
        while isinstance(message, RunChanged | TenantsChanged | SlotsChanged):
            message = await self.ports.inbox.next(SILENCE_SECONDS)
        assert message is None

    async def begin(self, n_slots: int = 1) -> None:
        """Acquire the lease and open so many slots at least. Whoever tests in a warm world finds both already."""
        await self.ports.lease.acquire()
        await self.open_slots(n_slots)

    async def ready(self, n_slots: int = 1) -> int:
        """Begin, with a run whose trials may train; return the run."""
        await self.begin(n_slots)
        return await self.opened_run()

    async def answer(self, order: Order) -> UnitRecorded | Piloted | UnitFailed:
        """Start an order, and return its answer."""
        await self.ports.executor.start(order)
        message = await self.message()
        assert isinstance(message, UnitRecorded | Piloted | UnitFailed)
        assert message.order == order
        return message

    async def open_slots(self, n_slots: int = 2) -> list[Slot]:
        """Open the sessions of the first slots and wait until they are warm."""
        slots = (await self.ports.slots.all_slots())[:n_slots]
        await self.ports.executor.open(slots)
        ready = {await self.message() for _ in slots}
        assert ready == {SlotReady(slot.slot_id) for slot in slots}
        return slots

    @staticmethod
    def opening(run: Run, arm: int = 0) -> Opening:
        """Return a decision to open an arm."""
        seen = {"bound": 0.9, "mean": 0.5, "deviation": 0.25, "cost": 1.0, "beta": 3.0, "best": 0.0, "gap": 0.9}
        decision = PolicyDecision(run.run_id, arm, "greedy", **seen, sig=float("nan"), score=0.9, pending=())
        standing = Standing(run.run_id, True, True, None, 0.9, 0.9, 0.0)
        memory = {"policy": {}, "unit_seconds": 2.0}
        return Opening(run.run_id, run.arms[arm].arm_id, "hybrid", decision, 2.0, 1, (), 1, (standing,), memory)

    async def opened_run(self, asked: int | None = None) -> int:
        """Ask for a run and open its arms: its trials may train."""
        run = await self.run(self.ask_for_run() if asked is None else asked)
        for arm in range(len(run.arms)):
            await self.ports.tenancy.open_arm(self.opening(run, arm))
        return run.run_id

    async def run(self, run_id: int) -> Run:
        """Read an open run."""
        run = await self.ports.runs.read(run_id)
        assert run is not None
        return run

    async def order(self, run_id: int, slot_id: int, *, step: int = 0, trial: int = 0) -> Order:
        """Return an order of a trial's unit, under the lease that the world last acquired."""
        unit = unit_at((await self.run(run_id)).trials[trial], step)
        return Order(unit, 7, slot_id, self.lease_number, 1)

    async def gang(self, run_id: int) -> Order:
        """Return an order of a gang of both slots over both partitions, of the trial that can train jointly."""
        run = await self.run(run_id)
        trial = next(k for k, each in enumerate(run.trials) if run.architectures[each.trial_id] == "mlp")
        first, second = [await self.order(run_id, slot, step=slot - 1, trial=trial) for slot in (1, 2)]
        return replace(first, members=(Member(second.unit, 8, 2),))

    async def whole_round(self, run_id: int, slot_id: int, *, step: int = 0) -> Order:
        """Return an order of both partitions at once on one slot, of a trial that takes them so."""
        first, second = [await self.order(run_id, slot_id, step=step + k) for k in range(N_PARTITIONS)]
        return replace(first, members=(Member(second.unit, 8, slot_id),))

    async def batch(self, run_id: int, slot_id: int, *, step: int = 0) -> Order:
        """Return an order of the same step of all trials on one slot."""
        first, *others = [await self.order(run_id, slot_id, step=step, trial=trial) for trial in range(3)]
        return replace(first, members=tuple(Member(each.unit, 8 + k, slot_id) for k, each in enumerate(others)))
