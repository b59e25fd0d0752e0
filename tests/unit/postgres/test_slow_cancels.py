"""A server that does not answer a cancel keeps waiting nobody but the next unit of the same slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from easeml_db.coordinator.ports.messages import Message, Order, SlotReady, UnitRecorded
from easeml_db.postgres.slots.executor import PostgresExecutor
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import TrainingUnit


class _Silent:
    """A session whose server takes a cancel and says nothing until it is told to."""

    is_closed = False
    pid = 1

    def __init__(self) -> None:
        self.n_asked = 0
        self.answers = asyncio.Event()
        self.called: list[str] = []

    async def call(self, procedure: str, text: str) -> dict[str, Any]:
        self.called.append(procedure)
        return {}

    async def cancel(self) -> None:
        self.n_asked += 1
        await self.answers.wait()

    async def close(self) -> None:
        self.is_closed = True


class _Engine:
    """Opens one silent session for each slot."""

    def __init__(self) -> None:
        self.sessions: dict[int, _Silent] = {}

    async def open_session(self, slot: Slot) -> _Silent:
        self.sessions[slot.slot_id] = _Silent()
        return self.sessions[slot.slot_id]

    async def given_up(self, pids: dict[int, int]) -> dict[int, float]:
        return {}

    async def close(self) -> None:
        return


@asynccontextmanager
async def _two_slots(engine: _Engine, messages: asyncio.Queue[Message]) -> AsyncIterator[PostgresExecutor]:
    executor = PostgresExecutor(cast("Any", engine), messages.put_nowait)
    await executor.open([Slot(1, "slot-1", 1), Slot(2, "slot-2", 1)])
    assert {await messages.get(), await messages.get()} == {SlotReady(1), SlotReady(2)}
    yield executor
    await executor.close()


def test_nobody_waits_for_a_server_that_does_not_answer_a_cancel() -> None:
    engine = _Engine()

    async def cancel_twice() -> None:
        async with _two_slots(engine, asyncio.Queue()) as executor:
            await executor.cancel(1)
            await executor.cancel(1)
            assert engine.sessions[1].n_asked == 2
        assert engine.sessions[1].is_closed

    asyncio.run(asyncio.wait_for(cancel_twice(), 60))


def test_a_late_cancel_meets_no_later_unit() -> None:
    """Only the slot's own next unit waits until the server has answered."""
    engine, messages = _Engine(), asyncio.Queue[Message]()

    async def start_after_a_cancel() -> None:
        async with _two_slots(engine, messages) as executor:
            await executor.cancel(1)
            for slot_id in (1, 2):
                await executor.start(Order(TrainingUnit(1, slot_id, slot_id, 0, "train", 1, 0, 0), 0, slot_id, 1, 1))
            recorded = await messages.get()
            assert isinstance(recorded, UnitRecorded)
            assert recorded.order.slot_id == 2
            assert engine.sessions[1].called == []
            engine.sessions[1].answers.set()
            recorded = await messages.get()
            assert isinstance(recorded, UnitRecorded)
            assert recorded.order.slot_id == 1

    asyncio.run(asyncio.wait_for(start_after_a_cancel(), 60))
