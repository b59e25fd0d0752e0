"""The contract of a kind of server: everything that only this kind knows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import psycopg

from easeml_db.postgres.connection import connect
from easeml_db.postgres.nodes.cluster_watch import ClusterWatch
from easeml_db.postgres.nodes.node_installation import install_segment
from easeml_db.postgres.nodes.node_session import NodeUnitSession
from easeml_db.postgres.nodes.node_store import NodeStore
from easeml_db.postgres.nodes.node_works import NodeWork
from easeml_db.postgres.nodes.nodes import Node
from easeml_db.postgres.nodes.segment_store import SegmentStore
from easeml_db.postgres.sessions.stuck_units import StuckUnits

# Of PostgreSQL 14 and newer, so they cannot be asked for before the version is known.
NEWER_SETTINGS = ("client_connection_check_interval", "idle_session_timeout")
NEWER_VERSION = 140000

PlainConnection: TypeAlias = psycopg.Connection[dict[str, Any]]
Tables: TypeAlias = dict[str, list[str]]
"""Names of tables by segment."""


class Reading(Protocol):
    """The tables that hold the rows of those that were named."""

    tables: Tables

    def read(self) -> AbstractAsyncContextManager[None]:
        """Check that the tables keep their places while the block reads them. Raises RowsHeld."""


class Engine:
    """Servers of one kind, reached in one way: directly, or through the coordinator of a cluster of them.

    As it stands: PostgreSQL servers with the extension easeml_segment, each a segment. Other engines override what
    differs. `content`: which member of a cluster a segment is.
    """

    options = ""  # of `easeml segment add`, besides the service
    settings: Mapping[str, str] = MappingProxyType({})  # of its sessions for packings and jobs, besides those of all
    session: type[NodeUnitSession] = NodeUnitSession  # of a slot
    work: type[NodeWork] = NodeWork  # the session of a packing or a job

    def serves(self, content: int | None) -> bool:
        """Return whether this engine reaches a segment with this content."""
        return content is None

    def check(self, service: str, facts: Mapping[str, Any]) -> None:
        """Refuse a server by its facts if it is not of this engine, or too old. Raises VersionMismatch, NotReady."""

    def check_work(self, node: Node, what: str) -> None:
        """Refuse packings or jobs that the engine cannot do. Raises NotAllowed."""

    def install(self, service: str, connection: PlainConnection) -> None:
        """Install or update what units need on the server."""
        install_segment(service, connection)

    async def connect(
        self, dsn: str, content: int | None, application_name: str, settings: Mapping[str, str]
    ) -> NodeStore:
        """Open an autocommit session about a segment. Raises ServerUnavailable, NotFound, NotReady, psycopg.Error."""
        return SegmentStore(await connect_server(dsn, application_name, settings))

    def watch(self, dsn: str, unit_lease_seconds: float) -> StuckUnits | ClusterWatch:
        """Return a watch on the units of a server."""
        return StuckUnits(dsn, unit_lease_seconds)

    async def cluster_of(self, work: NodeWork) -> str | None:
        """Return the identity of the cluster if a query in this session reads tables of all its segments, else None."""
        return None

    async def resolve(self, role: str, named: Tables, peers: Mapping[str, Node]) -> Reading | None:
        """Return the tables that hold the rows of those named, which a role must be able to read. None if those named
        hold them. `peers`: all segments of this engine. Raises EasemlError.
        """
        return None


async def connect_server(
    dsn: str, application_name: str, settings: Mapping[str, str]
) -> psycopg.AsyncConnection[dict[str, Any]]:
    """Open an autocommit connection with settings, of which an old server may lack some."""
    old = {name: value for name, value in settings.items() if name not in NEWER_SETTINGS}
    connection = await connect(dsn, application_name, **old)
    if connection.info.server_version >= NEWER_VERSION:
        for name in NEWER_SETTINGS:
            if name in settings:
                await connection.execute("SELECT set_config(%s, %s, false)", [name, settings[name]])
    return connection
