"""The servers on which units run: this one, and each node that a segment names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from easeml_db.errors import EasemlError
from easeml_db.postgres.connection import connect
from easeml_db.postgres.nodes.node_cache import NodeCache
from easeml_db.postgres.nodes.node_store import Connection, NodeStore
from easeml_db.postgres.nodes.nodes import Node, check_facts, connect_to, node_dsn, node_error
from easeml_db.postgres.nodes.state_search import FetchingSession
from easeml_db.postgres.nodes.states_in_use import StatesInUse
from easeml_db.postgres.sessions.slot_session import SETTINGS, open_session
from easeml_db.postgres.sessions.stuck_units import StuckUnits
from easeml_db.postgres.sessions.unit_session import UnitSession
from easeml_db.words.topology import Slot

READ_NODE = """
SELECT segment_id, segment_name, service, token, engine, content FROM easeml.segments WHERE segment_id = %s
"""
NOTE = "SELECT easeml.note_segment(%s, %s, %s)"
WATCH_SECONDS = 5.0


class NodeWatch:
    """Watches the units on a node. All slots are given up if the node has not answered for the lease of a unit."""

    def __init__(self, node: Node, unit_lease_seconds: float) -> None:
        self._stuck = node.kind.watch(node_dsn(node.service), unit_lease_seconds)
        self._lease_seconds = unit_lease_seconds
        self._silent_since: float | None = None

    async def given_up(self, pids: Mapping[int, int]) -> dict[int, float]:
        """Return the slots to give up, with their seconds of silence."""
        try:
            slots = await asyncio.wait_for(self._stuck.given_up(pids), WATCH_SECONDS)
        except TimeoutError:
            await self._stuck.close()
            self._silent_since = self._silent_since or time.monotonic()
            seconds = time.monotonic() - self._silent_since
            return dict.fromkeys(pids, seconds) if seconds > self._lease_seconds else {}
        self._silent_since = None
        return slots

    async def close(self) -> None:
        """Close its session."""
        await self._stuck.close()


class Servers:
    """Sessions for slots of this server and of nodes alike."""

    def __init__(self, dsn: str, unit_lease_seconds: float, in_use: StatesInUse) -> None:
        self._dsn, self._unit_lease_seconds, self._in_use = dsn, unit_lease_seconds, in_use
        self._stuck = StuckUnits(dsn, unit_lease_seconds)
        self._caches: dict[int, NodeCache] = {}
        self._watches: dict[int, NodeWatch] = {}
        self._segments: dict[int, int] = {}  # of slots on nodes

    async def open_session(self, slot: Slot) -> UnitSession:
        """Open and warm the session of a slot. Raises EasemlError or psycopg.Error."""
        if slot.service is None:
            session = await open_session(self._dsn, slot.slot_id, FetchingSession)
            session.caches = self._caches
            return session
        control = await connect(self._dsn, f"easeml slot {slot.slot_id}", **SETTINGS)
        try:
            cache = await self._cache_of(control, slot.segment_id)
            remote = await self._open_remote(control, cache.node, slot.slot_id)
        except BaseException:
            await control.close()
            raise
        cache.opened()
        self._segments[slot.slot_id] = slot.segment_id
        there = cache.node.kind.session(slot.slot_id, control, remote, cache, self._caches, self._cache_of)
        await there.show_idle()
        return there

    async def given_up(self, pids: Mapping[int, int]) -> Mapping[int, float]:
        """Cancel and terminate units that are silent for too long; return the slots to give up."""
        slots = dict(await self._stuck.given_up({slot: pids[slot] for slot in pids.keys() - self._segments.keys()}))
        on_nodes = {
            segment_id: {slot: pid for slot, pid in pids.items() if self._segments.get(slot) == segment_id}
            for segment_id in self._watches
        }
        for more in await asyncio.gather(*(self._watches[key].given_up(share) for key, share in on_nodes.items())):
            slots |= more
        return slots

    async def close(self) -> None:
        """Close the resources that the sessions of all slots share."""
        closing = [self._stuck.close(), *(cache.close() for cache in self._caches.values())]
        await asyncio.gather(*closing, *(watch.close() for watch in self._watches.values()))

    async def _cache_of(self, control: Connection, segment_id: int) -> NodeCache:
        row: dict[str, Any] | None = await (await control.execute(READ_NODE, [segment_id])).fetchone()
        node = Node(**(row or {}))
        cache = self._caches.get(segment_id)
        if cache is None or cache.node != node:
            self._caches[segment_id] = NodeCache(self._dsn, node, self._in_use)
            self._watches[segment_id] = NodeWatch(node, self._unit_lease_seconds)
        return self._caches[segment_id]

    async def _open_remote(self, control: Connection, node: Node, slot_id: int) -> NodeStore:
        """Open and warm a session on a node, and record the facts learnt about the node."""
        try:
            remote = await connect_to(node, f"easeml slot {slot_id}", SETTINGS)
            try:
                await self._check(control, remote, node)
            except BaseException:
                await remote.connection.close()
                raise
        except psycopg.Error as error:
            refusal = node_error(node.service, error)
        except EasemlError as error:
            refusal = error
        else:
            return remote
        await control.execute(NOTE, [node.segment_id, None, str(refusal)])
        raise refusal

    @staticmethod
    async def _check(control: Connection, remote: NodeStore, node: Node) -> None:
        facts = await remote.facts()
        check_facts(node.service, facts, node.kind)
        await control.execute(NOTE, [node.segment_id, Jsonb(facts), None])
        await remote.hold(node.token)
        await remote.make_ready()
