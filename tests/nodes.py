"""Nodes for tests: databases with the extension easeml_segment, each a libpq service by its name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.conftest import Session, temporary_database

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded

NODE_ROLE = "easeml_service"


def section(name: str, dsn: str) -> str:
    """A service as pg_service.conf has it."""
    return f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in conninfo_to_dict(dsn).items())


@contextmanager
def service_file(folder: Path, dsns: Mapping[str, str]) -> Iterator[Path]:
    """A file of services that this process and its coordinators use."""
    path = folder / "pg_service.conf"
    path.write_text("".join(section(name, dsn) for name, dsn in dsns.items()))
    os.chmod(path, 0o644)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGSERVICEFILE", str(path))
        yield path


def prepare_node(session: Session) -> str:
    """Make a database a node; return the connection string by which coordinators reach it."""
    session.execute("CREATE EXTENSION easeml_segment CASCADE")
    session.as_role(NODE_ROLE, "easeml_segment").close()
    return make_conninfo(session.dsn, user=NODE_ROLE)


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
