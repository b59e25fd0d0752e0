"""What code about nodes asks of a kind of server: everything that only this kind knows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import psycopg

if TYPE_CHECKING:
    from easeml_db.postgres.nodes.node_session import NodeUnitSession
    from easeml_db.postgres.nodes.node_store import Facts, NodeStore
    from easeml_db.postgres.nodes.node_works import NodeWork
    from easeml_db.postgres.nodes.nodes import Node

PlainConnection: TypeAlias = psycopg.Connection[dict[str, Any]]
Tables: TypeAlias = dict[str, list[str]]
"""Names of tables by segment."""


class Watch(Protocol):
    """A watch on units that give no sign of life."""

    async def given_up(self, pids: Mapping[int, int]) -> dict[int, float]:
        """Return the slots to give up, with their seconds of silence; this takes long if a server does not answer."""

    async def close(self) -> None:
        """Close its session."""


class Reading(Protocol):
    """Tables that stand for those that were named."""

    @property
    def tables(self) -> Tables:
        """Those to be read, by segment."""

    def read(self) -> AbstractAsyncContextManager[None]:
        """Check that what is read in the block was the tables named, all the while. Raises RowsHeld."""


class Engine(Protocol):
    """Servers of one kind, reached in one way: directly, or through the coordinator of a cluster of them."""

    name: str
    settings: Mapping[str, str]  # of its sessions for packings and jobs, besides those of all
    options: str  # of `easeml segments add`, besides the service
    session: type[NodeUnitSession]  # of a slot
    work: type[NodeWork]  # the session of a packing or a job

    def serves(self, content: int | None) -> bool:
        """Return whether a segment with this content is reached so."""

    def check(self, service: str, facts: Mapping[str, Any]) -> None:
        """Refuse a server by its facts if it is not of this engine, or too old. Raises VersionMismatch, NotReady."""

    def check_work(self, node: Node, what: str) -> None:
        """Refuse packings or jobs that the engine cannot do. Raises NotAllowed."""

    def look(self, connection: PlainConnection, content: int | None) -> Facts:
        """Return the facts that a segment reports. Raises the reason if it cannot be used, psycopg.Error."""

    def hold(self, connection: PlainConnection, content: int | None, token: str) -> None:
        """Make a segment serve a token, and no other. Raises NotAllowed, psycopg.Error."""

    def install(self, service: str, connection: PlainConnection) -> None:
        """Install, or update, what units need there."""

    async def connect(
        self, dsn: str, content: int | None, application_name: str, settings: Mapping[str, str]
    ) -> NodeStore:
        """Open an autocommit session about a segment. Raises ServerUnavailable, NotFound, NotReady, psycopg.Error."""

    def watch(self, dsn: str, unit_lease_seconds: float) -> Watch:
        """Return a watch on the units of a server."""

    async def cluster_of(self, work: NodeWork) -> str | None:
        """Return the identity of the cluster if a query in this session reads tables of all its segments, else None."""

    async def resolve(self, role: str, named: Tables, peers: Mapping[str, Node]) -> Reading | None:
        """Return the tables that hold the rows of those named, which a role must be able to read. None if names are
        those of tables that hold rows. `peers`: all segments of this engine. Raises EasemlError.
        """


def member(content: int | None) -> int:
    """Return the content of a segment of a cluster, which has one (`Engine.serves`)."""
    return 0 if content is None else content
