"""The session of a packing or a job on one node, whose errors become errors of the project.

An engine may bring a subclass, which callers need not know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from easeml_db import __version__
from easeml_db.errors import (
    EasemlError,
    InvalidData,
    NotAllowed,
    OutOfSpace,
    RowsHeld,
    ServerBusy,
    ServerUnavailable,
    SlotLost,
    VersionMismatch,
    from_sqlstate,
)
from easeml_db.postgres.connection import server_error, unit_error
from easeml_db.postgres.nodes.node_store import NodeStore
from easeml_db.postgres.nodes.nodes import Node, connect_to, node_error, unreachable

T = TypeVar("T")
Fields = dict[str, Any]
Columns = Mapping[str, str]
"""Names of columns and their types, as SQL writes both."""
SETTINGS = {
    "statement_timeout": "0", "idle_session_timeout": "0", "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "10s", "jit": "off", "client_connection_check_interval": "1s",
}  # fmt: skip
VERSION = "SELECT easeml_segment.version() AS version"
STEP = "SELECT easeml_segment.pack_on_node(%s, %s::jsonb) AS found"
SILENCE_SECONDS, LOOK_SECONDS = 20.0, 10.0
READING = (
    "On that server make a reader for the tenant's role (easeml segment install SERVICE --reader ROLE), and have the"
    " table's owner GRANT SELECT on it TO easeml_reads_ROLE."
)
PASSING = (ServerBusy, ServerUnavailable, RowsHeld, OutOfSpace, SlotLost)
"""Errors that pass: the request is retried."""


class NodeWork:
    """A session on a node for one packing or job; its errors name the segment."""

    def __init__(self, node: Node, store: NodeStore) -> None:
        self.node, self.store, self.connection = node, store, store.connection
        self.lock = asyncio.Lock()

    async def step(self, name: str, request: Fields) -> Fields:
        """Do a step of packing on the node; return its answer."""
        (row,) = await self.execute(STEP, name, json.dumps(request))
        return {**row["found"], "segment": self.node.segment_name}

    async def execute(self, statement: str, *values: object) -> list[dict[str, Any]]:
        """Execute a statement on the node; return its rows. Raises ServerUnavailable if the node answers nobody."""
        async with segment_errors(self.node):
            return await self._watched(asyncio.ensure_future(self._rows(statement, values)))

    async def asked(self, statement: str, *values: object) -> Fields:
        """Return the one value of a statement, `found`; an error that comes as a value is raised."""
        (row,) = await self.execute(statement, *values)
        answer: Fields = row["found"]
        if "failure" in answer:
            raise named(self.node, _reported_error(answer["failure"]))
        return answer

    async def unit(self, work: str, order: str, context: str) -> Fields:
        """Do a unit on the node, which commits; return its result."""
        (row,) = await self.execute(f"CALL easeml_segment.{work}(%s::jsonb, %s::jsonb, NULL)", order, context)
        result: Fields = row["result"]
        return result

    def read(self, query: sql.Composable, columns: Columns) -> sql.Composable:
        """Return the COPY statement's query for the rows of a query on the node. `columns`: their names and types."""
        return query

    async def set_up(self, settings: Mapping[str, str]) -> None:
        """Do nothing: the session was opened with these settings."""

    async def _rows(self, statement: str, values: Sequence[object]) -> list[dict[str, Any]]:
        cursor = await self.connection.execute(statement.encode(), list(values))
        return await cursor.fetchall() if cursor.description else []

    async def _watched(self, work: asyncio.Future[T]) -> T:
        """Wait without limit while the node answers other sessions: a stopped node keeps its connections open."""
        try:
            while not (await asyncio.wait([work], timeout=SILENCE_SECONDS))[0]:
                await self._look()
        except BaseException:
            work.cancel()
            await asyncio.wait([work])
            raise
        return work.result()

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._visit()
        except (TimeoutError, EasemlError) as error:
            raise unreachable(self.node.service) from error

    async def _visit(self) -> None:
        """Open another session on the node for a moment."""
        await (await connect_to(self.node, "easeml looks", {})).connection.close()


@asynccontextmanager
async def segment_errors(node: Node) -> AsyncIterator[None]:
    """Raise errors of a node as errors of the project that name its segment."""
    try:
        yield
    except psycopg.Error as error:
        raise named(node, _error_of(node, error)) from error


def named(node: Node, error: EasemlError) -> EasemlError:
    """Return an error whose message names the segment."""
    message = f"segment {node.segment_name}: {error.message}"
    return type(error)(message, detail=error.detail, hint=error.hint)


def _reported_error(failure: Fields) -> EasemlError:
    """Return the error that a node has reported as a value."""
    error = from_sqlstate(*(failure[name] for name in ("sqlstate", "message", "detail", "hint")))
    is_forbidden = failure["sqlstate"] == "42501"
    return NotAllowed(f"it may not be read there ({error})", hint=READING) if is_forbidden else error


def _error_of(node: Node, error: psycopg.Error) -> EasemlError:
    if error.sqlstate == "42501" and "easeml_segment" not in str(error):
        return NotAllowed(f"it may not be read there ({server_error(error).message})", hint=READING)
    if error.sqlstate is not None and error.sqlstate.startswith("ML"):
        return server_error(error)
    problem = unit_error(error)
    if isinstance(problem, PASSING):
        return problem
    return node_error(node.service, error) if error.sqlstate == "42501" else InvalidData(problem.message)


async def all_of(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Wait for all, then raise the first error: nothing still runs when the caller closes its sessions."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return [result for result in done if not isinstance(result, BaseException)]


async def on_all(
    works: Mapping[str, NodeWork], name: str, sent: Fields, extra: Callable[[str], Fields]
) -> list[Fields]:
    """Do a step on all nodes at once. `sent` goes to all; `extra` returns the rest for one of them."""
    return await all_of(work.step(name, {**sent, **extra(segment)}) for segment, work in works.items())


async def open_work(node: Node, what: str = "packing") -> NodeWork:
    """Open a session on a node that serves this control server with the same version. Raises EasemlError."""
    engine = node.kind
    engine.check_work(node, what)
    settings = SETTINGS | dict(engine.settings)
    work = engine.work(node, await connect_to(node, f"easeml {what}", settings))
    try:
        await work.set_up(settings)
        await check_fit(work)
    except BaseException:
        await work.connection.close()
        raise
    return work


async def check_fit(work: NodeWork) -> None:
    """Refuse a node with another version of the extension, or one that serves another segment. Raises VersionMismatch,
    InvalidData.
    """
    (extension,) = await work.execute(VERSION)
    if extension["version"] != __version__:
        raise VersionMismatch(
            f"segment {work.node.segment_name}: its extension is {extension['version']}, this package is {__version__}"
        )
    async with segment_errors(work.node):
        await work.store.hold(work.node.token)


@asynccontextmanager
async def node_work(node: Node, what: str = "packing") -> AsyncIterator[NodeWork]:
    """Open a session on a node for a block. Raises EasemlError."""
    work = await open_work(node, what)
    try:
        yield work
    finally:
        await work.connection.close()
