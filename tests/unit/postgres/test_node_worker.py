"""What nobody wants of nodes any more is cancelled, and has time to end what it has begun there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from easeml_db.postgres.on_nodes.worker import CANCEL_AGAIN_SECONDS, Asked, NodeWorker, _Work

N_STEPS = 20


class _Requests:
    """A server on which one job is asked for, and no longer wanted once it is under way."""

    def __init__(self) -> None:
        self.leading = SimpleNamespace(lease_number=1, dsn="")
        self._is_found = False

    async def row(self, statement: str, *_values: object) -> dict[str, Any]:
        if statement == "wanted":
            return {"numbers": []}
        if statement == "opened":
            return {"told": {"seconds": 600.0}}
        told, self._is_found = (None if self._is_found else {"number": 1, "tenant": "anna"}), True
        return {"told": told, "has_nodes": True}


def test_a_job_that_is_cancelled_clears_away_what_it_has_begun() -> None:
    """Each look cancelled it again, and so cut short its goodbye to the node."""
    cleared: list[int] = []

    async def do(_dsn: str, _told: dict[str, Any], _lease_number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for step in range(N_STEPS):
                await asyncio.sleep(0)
                cleared.append(step)

    async def work() -> None:
        worker = NodeWorker(cast("Any", _Requests()), Asked("next", "opened", "wanted", "note", do))
        assert await worker.take_turn() == 1
        await asyncio.sleep(0)
        while await worker.take_turn():
            await asyncio.sleep(0)

    asyncio.run(work())
    assert cleared == list(range(N_STEPS))


def test_a_job_that_does_not_end_is_cancelled_again_after_longer_and_longer_pauses() -> None:
    cancels: list[int] = []
    work = _Work("anna", cast("Any", SimpleNamespace(cancel=lambda: cancels.append(1))))
    moments = []
    for second in range(1, int(8 * CANCEL_AGAIN_SECONDS)):
        n_before = len(cancels)
        work.cancel(float(second))
        moments += [second] if len(cancels) > n_before else []
    assert moments == [1, 11, 31, 71]
