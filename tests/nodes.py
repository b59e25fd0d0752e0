"""Nodes for tests: databases with the extension easeml_segment, each a libpq service by its name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.fixtures.databases import temporary_database
from tests.fixtures.servers import temporary_server
from tests.fixtures.sessions import Session

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded

NODE_ROLE = "easeml_service"


def section(name: str, dsn: str) -> str:
    """A service as pg_service.conf has it."""
    return f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in conninfo_to_dict(dsn).items())


@contextmanager
def service_file(folder: Path, dsns: Mapping[str, str]) -> Iterator[Path]:
    """A file of services that this process and its coordinators use, besides those that they use already."""
    path, before = folder / "pg_service.conf", Path(os.environ.get("PGSERVICEFILE", os.devnull))
    known = before.read_text() if before.exists() else ""
    path.write_text(known + "".join(section(name, dsn) for name, dsn in dsns.items()))
    os.chmod(path, 0o644)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGSERVICEFILE", str(path))
        yield path


def prepare_node(session: Session) -> str:
    """Make a database a node; return the connection string by which coordinators reach it."""
    session.execute("CREATE EXTENSION easeml_segment CASCADE")
    session.as_role(NODE_ROLE, "easeml_segment").close()
    return make_conninfo(session.dsn, user=NODE_ROLE)


def let_read(node: Session, tables: str, *roles: str) -> None:
    """Let tables be read on a node for these roles, by default for the one that works in the session."""
    for role in roles or (node.value("SELECT current_user::text"),):
        make_reader(node, role)
        node.execute(f"GRANT SELECT ON {tables} TO easeml_reads_{role}")


def make_reader(node: Session, role: str) -> None:
    """Make the role through which rows are read for a role, where it is missing."""
    reader = f"easeml_reads_{role}"
    if not node.values("SELECT 1 FROM pg_roles WHERE rolname = %s", reader):
        node.execute(f"CREATE ROLE {reader}")
    if node.values("SELECT 1 FROM pg_roles WHERE rolname = 'easeml_rows'"):
        node.execute(f"GRANT easeml_rows TO {reader}")
        node.execute(f"GRANT {reader} TO easeml_segment")


@contextmanager
def two_nodes(server: Embedded, folder: Path) -> Iterator[dict[str, Session]]:
    """Nodes east and west, databases of a server, by the services pg_east and pg_west."""
    with ExitStack() as stack:
        nodes = {}
        for name in ("east", "west"):
            dsn = stack.enter_context(temporary_database(server))
            nodes[name] = Session.open(dsn)
            stack.callback(nodes[name].close)
        stack.enter_context(service_file(folder, {f"pg_{name}": prepare_node(nodes[name]) for name in nodes}))
        yield nodes


@dataclass(frozen=True)
class NodeServer:
    """A server that is a node, and a superuser's way to it."""

    name: str
    server: Embedded
    dsn: str

    def signal(self, which: signal.Signals) -> None:
        """Send a signal to all processes of the server, the first of them first."""
        first = int((self.server.cluster / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(first)], capture_output=True, text=True, check=False
        )
        for pid in (first, *map(int, children.stdout.split())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)

    def kill(self) -> None:
        """Kill the server, and start it again."""
        self.signal(signal.SIGKILL)
        while self.server.is_running():
            time.sleep(0.05)
        self.server.start()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """All of its processes take no notice of anything; their connections stay."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)


@contextmanager
def node_servers(folder: Path) -> Iterator[list[NodeServer]]:
    """Nodes east and west, each a server of its own, by the services pg_east and pg_west."""
    with ExitStack() as stack:
        found, services = [], {}
        for name in ("east", "west"):
            server = stack.enter_context(temporary_server())
            with Session.open(server.dsn(database="postgres")) as session:
                session.execute(f"CREATE DATABASE {name}")
            dsn = server.dsn(database=name)
            with Session.open(dsn) as session:
                services[f"pg_{name}"] = prepare_node(session)
            found.append(NodeServer(name, server, dsn))
        stack.enter_context(service_file(folder, services))
        yield found
