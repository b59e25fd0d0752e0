"""Other servers that are segments: how they are reached, and whether they fit.

A node is named by a libpq service, so host, user and password are in the files of the connecting user, and in no table.
Messages of the driver may name host and user, so they are passed on as an error's detail, which no table keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from easeml_db import __version__
from easeml_db.errors import EasemlError, InvalidArgument, NotAllowed, NotReady, ServerUnavailable, VersionMismatch
from easeml_db.postgres.connection import MISSING, connect, connect_now, server_error
from easeml_db.postgres.nodes.citus_coordinator import connections as delegated
from easeml_db.postgres.nodes.greenplum import facts as greenplum
from easeml_db.postgres.nodes.greenplum.connections import connect_segment
from easeml_db.postgres.nodes.node_store import Facts, NodeStore
from easeml_db.postgres.nodes.segment_store import FACTS, HOLD, SegmentStore

# Of PostgreSQL 14 and newer, so they cannot be asked for before the version is known.
NEWER_SETTINGS = ("client_connection_check_interval", "idle_session_timeout")
NEWER_VERSION = 140000

PATIENCE: dict[str, Any] = {
    "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}  # fmt: skip

# What libpq says of a server that is there, but not for this user, password or database.
REFUSED_LOGINS = ("no password supplied", "authentication failed", "does not exist", "pg_hba.conf", "permission denied")

CITUS, GREENPLUM = "citus", "greenplum"
# A node of a Citus cluster keeps our extensions to itself; other servers ignore this setting.
OWN_DDL = "SELECT set_config('citus.enable_ddl_propagation', 'off', false)"
OLDEST_CITUS = 12


@dataclass(frozen=True)
class Node:
    """A segment that is another server; `content`: which member of a cluster it is, if the server is the cluster's
    coordinator.
    """

    segment_id: int
    segment_name: str
    service: str
    token: str
    engine: str = "postgres"
    content: int | None = None


def node_dsn(service: str) -> str:
    """Return the connection string of a service; a server that is cut off is found out, whatever the service says."""
    return make_conninfo(service=service, **PATIENCE)


def check_facts(service: str, facts: Mapping[str, Any], engine: str = "postgres") -> None:
    """Refuse a node of another version, one whose Python lacks packages that units need, and one that should be a Citus
    worker and is not. Raises VersionMismatch, NotReady.
    """
    found = {"extension easeml_segment": facts["extension"], "package easeml_plpy": facts["package"]}
    for name, version in found.items():
        if version != __version__:
            raise VersionMismatch(
                f"service {service}: its {name} is {version}, this package is {__version__}",
                hint="Install the same there: the package, easeml install --files-only, easeml segment install.",
            )
    for name, package in facts["packages"].items():
        if package["version"] is None:
            raise NotReady(
                f"service {service}: its Python cannot import {name} ({package['fault']})",
                hint="Install it for the Python of that server, and start the server again.",
            )
    if engine == CITUS:
        _check_worker(service, facts.get("citus"))


def _check_worker(service: str, citus: Mapping[str, Any] | None) -> None:
    if citus is None:
        raise NotReady(
            f"service {service}: its database has no extension citus, and its segment says engine => 'citus'",
            hint="Name the database of the cluster in pg_service.conf, or add the segment with engine => 'postgres'.",
        )
    if int(citus["version"].partition(".")[0]) < OLDEST_CITUS:
        raise VersionMismatch(
            f"service {service}: its Citus is {citus['version']}, expected {OLDEST_CITUS} or newer",
            hint="Update Citus on all nodes of the cluster.",
        )
    if citus["name"] is None:
        raise NotReady(
            f"service {service}: its Citus knows no cluster that it belongs to",
            hint="On the coordinator: SELECT citus_add_node('host', port), start_metadata_sync_to_node('host', port).",
        )


def node_error(service: str, error: psycopg.Error) -> EasemlError:
    """Return the error of a node, without the driver's words about the connection."""
    text = " ".join(str(error).split())
    if "definition of service" in text:
        hint = "Write it into pg_service.conf on the machine of the coordinator (or the file of PGSERVICEFILE)."
        return InvalidArgument(f"service {service}: there is no service of that name", hint=hint)
    if error.sqlstate in MISSING:
        return NotReady(
            f"service {service}: its database has no extension easeml_segment",
            hint=f"easeml segment install {service} (of a Greenplum cluster: with --engine greenplum)",
        )
    if error.sqlstate == "42501":
        hint = "On that server: GRANT easeml_segment TO the role that the service names."
        return NotAllowed(f"service {service}: its role may not use easeml_segment there", hint=hint)
    if "plpython3" in text:
        hint = "On that server install PL/Python for its PostgreSQL (Debian: postgresql-plpython3-NN)."
        return NotReady(f"service {service}: its server has no PL/Python (plpython3u)", hint=hint)
    if "easeml_plpy" in text and "No module named" in text:
        hint = "Install easeml-db for the Python of that server, and start the server again."
        return NotReady(f"service {service}: its Python has no package easeml_plpy", hint=hint)
    if error.sqlstate is None or isinstance(error, psycopg.OperationalError):
        return unreachable(service, text)
    return of_service(service, server_error(error))


def of_service(service: str, error: EasemlError) -> EasemlError:
    """Return an error whose message says which service it is about."""
    return type(error)(f"service {service}: {error.message}", detail=error.detail, hint=error.hint)


def unreachable(service: str, text: str | None = None) -> ServerUnavailable:
    """Return the error that a node does not answer, or lets nobody in; host and user are in the detail alone."""
    if text is not None and any(words in text for words in REFUSED_LOGINS):
        hint = "Look at dbname and user of the service in pg_service.conf, at its password in .pgpass: psql service=..."
        return ServerUnavailable(f"service {service}: the server refuses the connection", detail=text, hint=hint)
    hint = "Is it running, and are host and port of the service in pg_service.conf right? Try psql service=..."
    return ServerUnavailable(f"service {service}: the server cannot be reached", detail=text, hint=hint)


def look_at(service: str, engine: str = "postgres", content: int | None = None) -> Facts:
    """Return the facts that a node reports; `content`: which member of a cluster it is. Raises the reason if it cannot
    be used.
    """
    with visited(service) as connection:
        if content is not None:
            cluster = greenplum if engine == GREENPLUM else delegated
            facts: Facts = cluster.look_now(connection, content)
        else:
            row = connection.execute(FACTS).fetchone()
            facts = {} if row is None else row["facts"]
    check_facts(service, facts, engine)
    return facts


def hold(node: Node) -> None:
    """Make the node serve this segment and no other. Raises NotAllowed if it serves another."""
    with visited(node.service) as connection:
        if node.content is not None:
            (greenplum if node.engine == GREENPLUM else delegated).hold_now(connection, node.content, node.token)
        else:
            connection.execute(HOLD, [node.token])


@contextmanager
def visited(service: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """Open a connection to a node for a moment; its errors come out as the project's."""
    try:
        with connect_now(node_dsn(service), "easeml segment") as connection:
            yield connection
    except psycopg.Error as error:
        raise node_error(service, error) from error
    except ServerUnavailable as error:
        raise _of_connecting(service, error) from error


def execute_script(service: str, script: bytes) -> None:
    """Execute statements as one transaction. Raises errors in the server's own words."""
    with visited(service) as connection:
        try:
            connection.execute(script)
        except psycopg.Error as error:
            raise server_error(error) from error


async def connect_to(node: Node, application_name: str, settings: Mapping[str, str]) -> NodeStore:
    """Open an autocommit connection to a node, or to the cluster about the segment that it is; return its store."""
    if node.content is None:
        return SegmentStore(await connect_node(node.service, application_name, settings))
    try:
        opened = connect_segment if node.engine == GREENPLUM else delegated.connect_worker
        return await opened(node_dsn(node.service), node.content, application_name, settings)
    except ServerUnavailable as error:
        raise _of_connecting(node.service, error) from error


async def connect_node(
    service: str, application_name: str, settings: Mapping[str, str]
) -> psycopg.AsyncConnection[dict[str, Any]]:
    """Open an autocommit connection to a node with settings, of which an old server may lack some."""
    old = {name: value for name, value in settings.items() if name not in NEWER_SETTINGS}
    try:
        connection = await connect(node_dsn(service), application_name, **old)
    except ServerUnavailable as error:
        raise _of_connecting(service, error) from error
    if connection.info.server_version >= NEWER_VERSION:
        for name in NEWER_SETTINGS:
            if name in settings:
                await connection.execute("SELECT set_config(%s, %s, false)", [name, settings[name]])
    return connection


def _of_connecting(service: str, error: ServerUnavailable) -> EasemlError:
    """Return the error of a connection that did not come about."""
    cause = error.__cause__
    return node_error(service, cause) if isinstance(cause, psycopg.Error) else unreachable(service)
