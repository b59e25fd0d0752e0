"""A batch on a node: a cancel reaches it whenever it comes."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from easeml_db.errors import SlotLost
from easeml_db.postgres.nodes.node_session import NodeUnitSession


def test_a_cancel_that_comes_between_two_members_of_a_batch_ends_it() -> None:
    away = SimpleNamespace(closed=True)  # no statement is under way that could be cancelled
    session = NodeUnitSession(1, *[SimpleNamespace(closed=True, connection=away)] * 2, None, {}, None)  # type: ignore
    begun: list[int] = []

    async def unit(procedure: str, text: str) -> dict[str, Any]:
        begun.append(json.loads(text)["trial_id"])
        await session.cancel()
        return {"pruned_bytes": 0}

    session._unit = unit  # type: ignore[method-assign]
    batch = json.dumps({"batch": [{"trial_id": 1}, {"trial_id": 2}]})
    with pytest.raises(SlotLost, match="cancelled"):
        asyncio.run(session.call("train_batch", batch))
    assert begun == [1]
    with pytest.raises(SlotLost, match="cancelled"):  # the next order is another one
        asyncio.run(session.call("train_batch", batch))
    assert begun == [1, 1]
