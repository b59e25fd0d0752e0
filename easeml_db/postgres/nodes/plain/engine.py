"""The engine of PostgreSQL servers, each with the extension easeml_segment."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import psycopg

from easeml_db.postgres.connection import connect
from easeml_db.postgres.nodes.engine import Engine, PlainConnection, Reading, Tables, Watch
from easeml_db.postgres.nodes.node_installation import install_segment
from easeml_db.postgres.nodes.node_session import NodeUnitSession
from easeml_db.postgres.nodes.node_store import Facts, NodeStore
from easeml_db.postgres.nodes.node_works import NodeWork
from easeml_db.postgres.nodes.nodes import Node
from easeml_db.postgres.nodes.segment_store import FACTS, HOLD, SegmentStore
from easeml_db.postgres.sessions.stuck_units import StuckUnits

# Of PostgreSQL 14 and newer, so they cannot be asked for before the version is known.
NEWER_SETTINGS = ("client_connection_check_interval", "idle_session_timeout")
NEWER_VERSION = 140000


class PostgresNode:
    """A server that is one segment."""

    name = "postgres"
    settings: Mapping[str, str] = MappingProxyType({})
    options = ""
    session: type[NodeUnitSession] = NodeUnitSession
    work: type[NodeWork] = NodeWork

    def serves(self, content: int | None) -> bool:
        """Return whether the segment is the server itself."""
        return content is None

    def check(self, service: str, facts: Mapping[str, Any]) -> None:
        """Accept every server that units can run on."""

    def check_work(self, node: Node, what: str) -> None:
        """Accept all packings and jobs."""

    def look(self, connection: PlainConnection, content: int | None) -> Facts:
        """Return the facts that the server reports."""
        row = connection.execute(FACTS).fetchone()
        return {} if row is None else row["facts"]

    def hold(self, connection: PlainConnection, content: int | None, token: str) -> None:
        """Make the server serve a token, and no other."""
        connection.execute(HOLD, [token])

    def install(self, service: str, connection: PlainConnection) -> None:
        """Create the extension easeml_segment, or update it."""
        install_segment(service, connection)

    async def connect(
        self, dsn: str, content: int | None, application_name: str, settings: Mapping[str, str]
    ) -> NodeStore:
        """Open an autocommit session on the server."""
        return SegmentStore(await connect_server(dsn, application_name, settings))

    def watch(self, dsn: str, unit_lease_seconds: float) -> Watch:
        """Return a watch on the processes of units."""
        return StuckUnits(dsn, unit_lease_seconds)

    async def cluster_of(self, work: NodeWork) -> str | None:
        """Return None: a query reads the tables of this server."""
        return None

    async def resolve(self, role: str, named: Tables, peers: Mapping[str, Node]) -> Reading | None:
        """Return None: tables hold their rows."""
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


ENGINES: tuple[Engine, ...] = (PostgresNode(),)
