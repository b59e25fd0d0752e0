"""A server that is silent in the midst of a transfer is not the fault of the unit that waited for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from easeml_db.errors import ServerUnavailable, SlotLost
from easeml_db.postgres.nodes.node_session import NodeUnitSession


@pytest.mark.parametrize("procedure", ["train_unit", "train_batch"])
def test_a_unit_whose_transfer_was_given_up_runs_again(procedure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_arguments: object) -> None:
        raise ServerUnavailable("a server has not answered for 20 seconds")

    monkeypatch.setattr(NodeUnitSession, "_unit", fail)
    store = SimpleNamespace(connection=None)
    session = NodeUnitSession(1, *(cast("Any", each) for each in (None, store, None, {}, None)))
    with pytest.raises(SlotLost, match="has not answered for 20 seconds"):
        asyncio.run(session.call(procedure, '{"batch": [{"trial_id": 1}]}'))
