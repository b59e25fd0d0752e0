"""A server that does not answer a cancel keeps no other unit waiting."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from easeml_db.postgres.executor import PostgresExecutor
from easeml_db.words.topology import Slot


class _Silent:
    """A session whose server takes a cancel and says nothing."""

    is_closed = False
    pid = 1

    def __init__(self) -> None:
        self.n_asked = 0

    async def cancel(self) -> None:
        self.n_asked += 1
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.is_closed = True


class _Engine:
    """Opens one silent session."""

    def __init__(self) -> None:
        self.session = _Silent()

    async def open_session(self, slot: Slot) -> _Silent:
        return self.session

    async def given_up(self, pids: dict[int, int]) -> dict[int, float]:
        return {}

    async def close(self) -> None:
        return


def test_nobody_waits_for_a_server_that_does_not_answer_a_cancel() -> None:
    engine = _Engine()

    async def cancel_twice() -> None:
        ready = asyncio.Event()
        executor = PostgresExecutor(cast("Any", engine), lambda message: ready.set())
        await executor.open([Slot(1, "slot-1", 1)])
        await ready.wait()
        await executor.cancel(1)
        await executor.cancel(1)
        assert engine.session.n_asked == 2
        await executor.close()
        assert engine.session.is_closed

    asyncio.run(asyncio.wait_for(cancel_twice(), 60))
