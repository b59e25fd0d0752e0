"""The location of a state that lies on nodes only. A trial whose state is lost goes back to the start of its epoch."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import psycopg

from easeml_db.errors import CorruptCheckpoint, NotFound, RowsHeld, ServerUnavailable, StaleLease
from easeml_db.postgres.connection import unit_error
from easeml_db.postgres.nodes.node_cache import NodeCache
from easeml_db.postgres.nodes.node_store import Connection, KnownState
from easeml_db.postgres.sessions.slot_session import SlotSession
from easeml_db.postgres.sessions.unit_session import Result

PATIENCE_SECONDS = 30.0  # with a node that has the only copy of a state: it may be starting again
REWIND = "SELECT easeml.rewind_trial(%s::jsonb)"
ELSEWHERE = """
SELECT c.checkpoint_id, c.trial_id, c.n_bytes, c.sha256, c.tenant::text AS tenant,
    ARRAY(SELECT k.segment_id FROM easeml.checkpoint_copies k WHERE k.checkpoint_id = c.checkpoint_id
        ORDER BY k.segment_id) AS segments
FROM easeml.trials t JOIN easeml.checkpoints c USING (checkpoint_id) WHERE t.trial_id = %s AND c.is_elsewhere
    AND NOT EXISTS (SELECT FROM easeml.checkpoint_chunks k WHERE k.checkpoint_id = c.checkpoint_id)
"""


async def found_on_a_node(
    control: Connection, text: str, caches: Mapping[int, NodeCache], segments: Sequence[int],
    bring: Callable[[NodeCache], Awaitable[object]],
) -> None:  # fmt: skip
    """Bring a state from a node that has it; nodes on which it was made come first. Raises RowsHeld if a node that does
    not answer may come back, StaleLease once the trial is rewound.
    """
    silent: list[NodeCache] = []
    for segment_id in [*segments, *(number for number in caches if number not in segments)]:
        cache = caches.get(segment_id)
        if cache is None:
            continue
        try:
            await bring(cache)
        except (NotFound, CorruptCheckpoint):
            continue
        except ServerUnavailable:
            silent += [cache] if segment_id in segments else []
        else:
            return
    waited_for = next((cache for cache in silent if cache.silent_seconds() < PATIENCE_SECONDS), None)
    if waited_for is not None:
        raise RowsHeld(f"segment {waited_for.node.segment_name}, which has the state, does not answer")
    await control.execute(REWIND, [text])
    trial_id = json.loads(text)["trial_id"]
    raise StaleLease(f"the state of trial {trial_id} is gone with its server: its epoch begins again")


class FetchingSession(SlotSession):
    """The session of a slot on this server, where trials also come from nodes."""

    caches: Mapping[int, NodeCache]

    async def call(self, procedure: str, text: str) -> Result:
        """Do an order, once the state that it starts from is here."""
        if self.caches and procedure in ("train_unit", "train_batch"):
            order = json.loads(text)
            try:
                for unit in order.get("batch", [order]):
                    await self._bring(unit)
            except psycopg.Error as error:
                raise unit_error(error) from error
        return await super().call(procedure, text)

    async def _bring(self, unit: dict[str, Any]) -> None:
        row = await (await self._connection.execute(ELSEWHERE, [unit["trial_id"]])).fetchone()
        if row is None:
            return

        known_state = KnownState(row["checkpoint_id"], row["trial_id"], row["n_bytes"], row["sha256"])

        async def bring(cache: NodeCache) -> None:
            async with self._connection.transaction():
                if not await cache.send_here(self._connection, known_state, row["tenant"]):
                    raise NotFound("it is not there")

        await found_on_a_node(self._connection, json.dumps(unit), self.caches, row["segments"], bring)
