"""Other servers that are segments: how they are reached, and whether they fit.

A node is named by a libpq service, so host, user and password are in the files of the connecting user, and in no table.
Messages of the driver may name host and user, so they are passed on as an error's detail, which no table keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo

from easeml_db import __version__
from easeml_db.errors import EasemlError, InvalidArgument, NotAllowed, NotReady, ServerUnavailable, VersionMismatch
from easeml_db.postgres.connection import DEMANDS, MISSING, UNMET_DEMANDS, connect_now, server_error
from easeml_db.postgres.nodes.engines import DEFAULT, engine_of
from easeml_db.postgres.nodes.node_store import Facts, NodeStore

if TYPE_CHECKING:
    from easeml_db.postgres.nodes.engine import Engine

T = TypeVar("T")

PATIENCE: dict[str, Any] = {
    "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}  # fmt: skip

# What libpq says of a server that is there, but not for this user, password or database.
REFUSED_LOGINS = ("no password supplied", "authentication failed", "does not exist", "pg_hba.conf", "permission denied")


@dataclass(frozen=True)
class Node:
    """A segment that is another server; `content`: which member of a cluster it is, if the server is the cluster's
    coordinator.
    """

    segment_id: int
    segment_name: str
    service: str
    token: str
    engine: str = DEFAULT
    content: int | None = None

    @property
    def kind(self) -> Engine:
        """The engine of its kind of server."""
        return engine_of(self.engine, self.content)


def node_dsn(service: str) -> str:
    """Return the connection string of a service, with keepalives that detect a server that is cut off."""
    return make_conninfo(service=service, **PATIENCE)


def check_facts(service: str, facts: Mapping[str, Any], engine: Engine) -> None:
    """Refuse a node of another version, one whose Python lacks packages that units need, and one that is not of its
    engine. Raises VersionMismatch, NotReady.
    """
    versions = {"extension easeml_segment": facts["extension"], "package easeml_plpy": facts["package"]}
    for name, version in versions.items():
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
    engine.check(service, facts)


def node_error(service: str, error: psycopg.Error) -> EasemlError:
    """Return the error of a node, without the driver's words about the connection."""
    text = " ".join(str(error).split())
    if "definition of service" in text:
        hint = "Write it into pg_service.conf on the machine of the coordinator (or the file of PGSERVICEFILE)."
        return InvalidArgument(f"service {service}: there is no service of that name", hint=hint)
    if error.sqlstate in MISSING:
        return NotReady(
            f"service {service}: its database has no extension easeml_segment",
            hint=f"easeml segment install {service} (of a cluster: with its --engine)",
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
    if text is not None and any(words in text for words in UNMET_DEMANDS):
        message, hint = f"service {service}: the server was not given the password", DEMANDS.format("the service")
        return ServerUnavailable(message, detail=text, hint=hint)
    if text is not None and any(words in text for words in REFUSED_LOGINS):
        hint = "Look at dbname and user of the service in pg_service.conf, at its password in .pgpass: psql service=..."
        return ServerUnavailable(f"service {service}: the server refuses the connection", detail=text, hint=hint)
    hint = "Is it running, and are host and port of the service in pg_service.conf right? Try psql service=..."
    return ServerUnavailable(f"service {service}: the server cannot be reached", detail=text, hint=hint)


def look_at(node: Node) -> Facts:
    """Return the facts that a node reports. Raises the reason if it cannot be used."""
    facts = asyncio.run(_answer(node, lambda store: store.facts()))
    check_facts(node.service, facts, node.kind)
    return facts


def hold(node: Node) -> None:
    """Make the node serve this segment and no other. Raises NotAllowed if it serves another."""
    asyncio.run(_answer(node, lambda store: store.hold(node.token)))


async def _answer(node: Node, ask: Callable[[NodeStore], Awaitable[T]]) -> T:
    """Open a session about a node for a block; raise its errors as the project's."""
    try:
        store = await connect_to(node, "easeml segments", {})
        try:
            return await ask(store)
        finally:
            await store.connection.close()
    except psycopg.Error as error:
        raise node_error(node.service, error) from error


@contextmanager
def visited(service: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """Open a connection to a node for a block; raise its errors as the project's."""
    try:
        with connect_now(node_dsn(service), "easeml segment") as connection:
            yield connection
    except psycopg.Error as error:
        raise node_error(service, error) from error
    except ServerUnavailable as error:
        raise _connection_failure(service, error) from error


def execute_script(service: str, script: bytes) -> None:
    """Execute statements as one transaction. Raises errors in the server's own words."""
    with visited(service) as connection:
        try:
            connection.execute(script)
        except psycopg.Error as error:
            raise server_error(error) from error


async def connect_to(node: Node, application_name: str, settings: Mapping[str, str]) -> NodeStore:
    """Open an autocommit connection to a node, or to the cluster about the segment that it is; return its store."""
    try:
        return await node.kind.connect(node_dsn(node.service), node.content, application_name, settings)
    except ServerUnavailable as error:
        raise _connection_failure(node.service, error) from error


def _connection_failure(service: str, error: ServerUnavailable) -> EasemlError:
    """Return the error of a connection that failed."""
    cause = error.__cause__
    return node_error(service, cause) if isinstance(cause, psycopg.Error) else unreachable(service)
