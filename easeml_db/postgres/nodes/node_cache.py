"""State shared by the sessions of all slots on a node: transfers from it and to it, and garbage.

States go from node to node through connections of their own, since the sessions of slots are busy: one that sends and
one that receives, so that two nodes that send to each other never wait for each other. Rows go through a third.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from easeml_db.errors import EasemlError, ServerUnavailable
from easeml_db.postgres import background
from easeml_db.postgres.connection import connect
from easeml_db.postgres.nodes.node_connections import NodeConnection
from easeml_db.postgres.nodes.node_rows import NodeRows
from easeml_db.postgres.nodes.node_store import Connection, KnownState, NodeStore
from easeml_db.postgres.nodes.nodes import Node
from easeml_db.postgres.nodes.states_in_use import StatesInUse
from easeml_db.postgres.nodes.transfers import bring_state, fetch_state

UNITS_BETWEEN_SWEEPS = 16
MOST_LANDED = 10_000
POINTED = "SELECT checkpoint_id FROM easeml.checkpoints WHERE checkpoint_id = ANY(%s)"
LIVE_DATASETS = """
SELECT dataset_id FROM easeml.datasets WHERE dataset_id = ANY(%s)
UNION ALL SELECT dataset_id FROM easeml.packings WHERE dataset_id = ANY(%s) AND failed_at IS NULL
"""


@dataclass(frozen=True)
class Hop:
    """A state's way from one server to another. `is_ahead`: it was there before a unit asked for it."""

    from_segment_id: int
    to_segment_id: int
    n_bytes: int
    seconds: float
    is_ahead: bool


class NodeCache:
    """One node, with everything that the executor shares between the sessions of its slots."""

    def __init__(self, dsn: str, node: Node, in_use: StatesInUse) -> None:
        self.node, self.in_use, self.rows = node, in_use, NodeRows(node)
        self._dsn = dsn
        self._sending, self._receiving = NodeConnection(node, "states out"), NodeConnection(node, "states in")
        self._arriving: dict[int, asyncio.Task[None]] = {}  # states on their way here
        self._landed: dict[int, Hop] = {}  # those that came ahead of time, until a unit has asked for them
        self._n_units = 0
        self._silent_since: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._making_room: asyncio.Task[None] | None = None

    def opened(self) -> None:
        """Note that a session was opened, because the server that answers may have been set up anew since."""
        self.rows.opened()
        self._silent_since = None

    def silent_seconds(self) -> float:
        """Return how long it has not answered."""
        return 0.0 if self._silent_since is None else time.monotonic() - self._silent_since

    async def arrived(self, checkpoint_id: int) -> Hop | None:
        """Wait for a state that is on its way here; return how it came, if it was sent ahead."""
        task = self._arriving.get(checkpoint_id)
        if task is not None:
            await asyncio.wait([task])
        arrival = self._landed.pop(checkpoint_id, None)
        return replace(arrival, is_ahead=task is None) if arrival else None

    async def send(self, target: NodeStore, state: KnownState, lease_number: int) -> int:
        """Copy a state from here to another node; return the number of bytes. Raises NotFound if it is not here."""
        async with self._measuring_silence(), self._sending.taken() as source:
            return await bring_state(source, target, state, lease_number)

    async def send_here(self, control: Connection, state: KnownState, tenant: str) -> int:
        """Copy a state from here to the control server, in the transaction that its connection is in."""
        async with self._measuring_silence(), self._sending.taken() as source:
            return await fetch_state(source, control, state, tenant)

    def push(self, target: NodeCache, state: KnownState, lease_number: int) -> None:
        """Begin to copy a state to where it will be needed; if that fails, it is fetched when needed."""
        checkpoint_id = state.checkpoint_id

        async def push() -> None:
            with contextlib.suppress(EasemlError, psycopg.Error):
                async with target._receiving.taken() as connection:
                    began = time.monotonic()
                    n_bytes = await self.send(connection, state, lease_number)
                target._note_landing(self, checkpoint_id, n_bytes, time.monotonic() - began)

        if checkpoint_id not in target._arriving:
            target._arriving[checkpoint_id] = task = self._begin(push())
            task.add_done_callback(lambda _: target._arriving.pop(checkpoint_id, None))

    def _note_landing(self, source: NodeCache, checkpoint_id: int, n_bytes: int, seconds: float) -> None:
        """Keep how a state came until its unit asks; states that no unit asks for any more are forgotten in turn.

        One that was there already has not come.
        """
        if not n_bytes:
            return
        if len(self._landed) >= MOST_LANDED:
            del self._landed[next(iter(self._landed))]
        places = source.node.segment_id, self.node.segment_id
        self._landed[checkpoint_id] = Hop(*places, n_bytes, seconds, is_ahead=True)

    @asynccontextmanager
    async def _measuring_silence(self) -> AsyncIterator[None]:
        """Note since when it does not answer."""
        try:
            yield
        except ServerUnavailable:
            self._silent_since = self._silent_since or time.monotonic()
            raise
        self._silent_since = None

    def recorded(self, lease_number: int) -> None:
        """Count a unit; now and then look for garbage."""
        self._n_units += 1
        if self._n_units % UNITS_BETWEEN_SWEEPS == 1:
            self._begin(self._sweep_quietly(lease_number))

    def make_room(self, lease_number: int) -> None:
        """Begin to free what a full disk has to spare: garbage, and the room of writes that were rolled back.

        No autovacuum comes for so little, and after a crash the server has forgotten where it has room; before
        PostgreSQL 17 autovacuum alone may look.
        """
        if self._making_room is None or self._making_room.done():
            self._making_room = self._begin(self._sweep_quietly(lease_number, is_full=True))

    async def close(self) -> None:
        """End background work, and close the connections."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for queue in (self._sending, self._receiving, self.rows):
            await queue.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = background.begin(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _sweep_quietly(self, lease_number: int, *, is_full: bool = False) -> None:
        with contextlib.suppress(EasemlError, psycopg.Error):
            await self.sweep(lease_number, is_full=is_full)

    async def sweep(self, lease_number: int, *, is_full: bool = False) -> int:
        """Remove the states and datasets that the control server does not know; return how many states.

        Their room is used again; with `is_full`, that of all that was ever removed.

        States that a later coordinator had written are not touched, nor those in use by units and jobs of this one. The
        states in use are listed before the control server is asked, so a state that it records meanwhile is in one of
        the two lists.
        """
        async with self._receiving.taken() as node, await connect(self._dsn, "easeml garbage") as control:
            listed = await node.states(lease_number)
            in_use = self.in_use.numbers()
            pointed = await _numbers(control, POINTED, list(listed))
            garbage = list(listed - pointed - in_use)
            if garbage or is_full:
                await node.collect(garbage, lease_number)
            datasets = await node.datasets()
            listed_datasets = list(datasets)
            gone = list(datasets - await _numbers(control, LIVE_DATASETS, listed_datasets, listed_datasets))
            if gone:
                await node.drop_datasets(gone)
        return len(garbage)


async def _numbers(connection: Connection, statement: str, *values: object) -> set[int]:
    cursor = await connection.execute(statement.encode(), list(values))
    return {next(iter(row.values())) for row in await cursor.fetchall()}
