"""Sessions that have served a packing, kept for the next one.

A new session imports numpy first, which takes longer than packing some ten thousand rows. Whoever makes a dataset often
makes another one next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import psycopg

from easeml_db.errors import EasemlError
from easeml_db.postgres import background
from easeml_db.postgres.connection import connect
from easeml_db.postgres.nodes.node_store import Connection
from easeml_db.postgres.nodes.node_works import SETTINGS, NodeWork, check_fit, open_work
from easeml_db.postgres.nodes.nodes import Node

KEPT_SECONDS = 10.0
"""Short, because whoever drops a database waits for its sessions."""


@dataclass(frozen=True)
class ControlSession:
    """A session on the control server."""

    connection: Connection


class _Session(Protocol):
    @property
    def connection(self) -> Connection: ...


S = TypeVar("S", ControlSession, NodeWork)


@dataclass(frozen=True)
class _Kept:
    session: _Session
    end: asyncio.TimerHandle


class KeptSessions:
    """At most one session for each node, and one on the control server, none longer than KEPT_SECONDS."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def control(self, dsn: str) -> AsyncIterator[ControlSession]:
        """Lend a session on the control server to a block."""

        async def open_session() -> ControlSession:
            return ControlSession(await connect(dsn, "easeml coordinator (packing)", **SETTINGS))

        async def look(session: ControlSession) -> None:
            await session.connection.execute("SELECT")

        async with self._session(dsn, ControlSession, open_session, look) as session:
            yield session

    @asynccontextmanager
    async def node(self, node: Node) -> AsyncIterator[NodeWork]:
        """Lend a session on a node to a block. Raises EasemlError."""
        async with self._session(node, NodeWork, lambda: open_work(node), check_fit) as work:
            yield work

    async def close(self) -> None:
        """Close all sessions that wait."""
        for key in list(self._kept):
            await self._drop(key)

    @asynccontextmanager
    async def _session(
        self,
        key: Hashable,
        kind: type[S],
        open_session: Callable[[], Awaitable[S]],
        look: Callable[[S], Awaitable[None]],
    ) -> AsyncIterator[S]:
        session = await self._taken(key, kind, look) or await open_session()
        try:
            yield session
        except BaseException:
            await session.connection.close()
            raise
        await self._drop(key)  # that of another packing, which ran beside this one
        end = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._end, key)
        self._kept[key] = _Kept(session, end)

    async def _taken(self, key: Hashable, kind: type[S], look: Callable[[S], Awaitable[None]]) -> S | None:
        """Return the session that is kept, if it still answers."""
        kept = self._kept.pop(key, None)
        if kept is None or not isinstance(kept.session, kind):
            return None
        kept.end.cancel()
        try:
            await look(kept.session)
        except (EasemlError, psycopg.Error):  # a new one says what is the matter
            await kept.session.connection.close()
            return None
        except BaseException:
            await kept.session.connection.close()
            raise
        return kept.session

    def _end(self, key: Hashable) -> None:
        task = background.begin(self._drop(key))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _drop(self, key: Hashable) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            kept.end.cancel()
            with contextlib.suppress(psycopg.Error):
                await kept.session.connection.close()
