"""Connections to a node, opened on demand, for work beside the sessions of its slots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from easeml_db.errors import EasemlError
from easeml_db.postgres.nodes.node_store import NodeStore
from easeml_db.postgres.nodes.nodes import Node, connect_to, unreachable

SETTINGS = {"statement_timeout": "0", "idle_session_timeout": "0", "lock_timeout": "10s", "jit": "off"}


class NodeConnection:
    """A connection to a node that is opened when it is needed, for one user at a time."""

    def __init__(self, node: Node, what: str) -> None:
        self._node, self._what = node, what
        self._lock = asyncio.Lock()
        self._store: NodeStore | None = None

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[NodeStore]:
        """Give the connection to one user. Raises EasemlError where the node does not answer."""
        async with self._lock:
            if self._store is None or self._store.connection.closed:
                self._store = await self._connected()
            try:
                yield self._store
            except psycopg.Error as error:
                if self._store.connection.closed:
                    raise unreachable(self._node.service) from error
                raise

    async def _connected(self) -> NodeStore:
        """Connect. Every error is one that no unit is to blame for."""
        try:
            return await connect_to(self._node, f"easeml {self._what}", SETTINGS)
        except EasemlError as error:
            raise unreachable(self._node.service, error.detail or str(error)) from error

    async def close(self) -> None:
        """Close it."""
        if self._store is not None:
            await self._store.connection.close()
