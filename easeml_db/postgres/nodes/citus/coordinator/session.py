"""The session of a slot on a worker of Citus that is reached through the coordinator of its cluster."""

from __future__ import annotations

import json
from typing import Any

from easeml_db.errors import SlotLost
from easeml_db.postgres.nodes.citus.coordinator.store import CoordinatorStore
from easeml_db.postgres.nodes.node_session import WORK, NodeUnitSession
from easeml_db.postgres.sessions.unit_session import Result


class CoordinatorUnitSession(NodeUnitSession):
    """The session of a slot on any node, except that Citus delegates the call of the unit."""

    _store: CoordinatorStore

    async def call(self, procedure: str, text: str) -> Result:
        """Do an order and return what came of it. A session that was cancelled, or met another node than its own, is
        not used again: the next one looks for the worker anew."""
        try:
            return await super().call(procedure, text)
        except SlotLost:
            await self.close()
            raise

    async def _called(self, procedure: str, text: str, opened: dict[str, Any]) -> dict[str, Any]:
        statement = self._store.worker.unit(WORK[procedure], text, json.dumps(opened))
        row = await (await self._remote.execute(statement)).fetchone()
        result: dict[str, Any] = (row or {})["result"]
        return result
