"""Private servers that are nodes of a private control server: in folders of its own, reached over their sockets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from easeml_db.local.preparation import SERVICE_ROLE
from easeml_db.local.private_files import write_private
from easeml_db.local.server import DATABASE, Embedded
from easeml_db.postgres.connection import connect_now
from easeml_db.postgres.nodes.node_installation import LOCAL_DDL
from easeml_db.postgres.versions import update_extension

SERVICES = "pg_service.conf"


def start_nodes(server: Embedded, names: Sequence[str]) -> None:
    """Start a node for each name, making what is missing, and add their services, pg_NAME, for the coordinator."""
    server.prepare_folders()
    sections = _other_services(server.folder / SERVICES, names)
    for name in names:
        node = Embedded(server.folder / "nodes" / name)
        (server.folder / "nodes").mkdir(mode=0o755, exist_ok=True)
        node.start()
        prepare_node(node)
        facts = conninfo_to_dict(node.dsn(user=SERVICE_ROLE))
        sections += [f"[pg_{name}]", *(f"{key}={value}" for key, value in facts.items()), ""]
    if not (server.folder / SERVICES).exists():
        server.stop_coordinator()  # a running coordinator was started without this file, and would never find it
    write_private(server.folder / SERVICES, "\n".join(sections))
    os.environ["PGSERVICEFILE"] = str(server.folder / SERVICES)


def _other_services(path: Path, names: Sequence[str]) -> list[str]:
    """Return the lines about services that somebody has added to those of the nodes."""
    headings, kept, is_kept = {f"[pg_{name}]" for name in names}, [], True
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line.lstrip().startswith("["):
            is_kept = line.strip() not in headings
        kept += [line] if is_kept else []
    return kept


def nodes_of(server: Embedded) -> list[str]:
    """Return the names of the nodes that a control server has."""
    folder = server.folder / "nodes"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def stop_nodes(server: Embedded) -> None:
    """Stop the nodes of a control server."""
    for name in nodes_of(server):
        Embedded(Path(server.folder) / "nodes" / name).stop()


def remove_nodes(server: Embedded) -> None:
    """Stop the nodes of a control server, and delete them."""
    for name in nodes_of(server):
        Embedded(Path(server.folder) / "nodes" / name).remove()


def prepare_node(node: Embedded) -> None:
    """Create database, extension and the coordinator's role on a node, where they are missing; update the extension."""
    prepare_roles(node)
    with connect_now(node.dsn()) as connection:
        connection.execute(LOCAL_DDL)
        connection.execute("CREATE EXTENSION IF NOT EXISTS easeml_segment CASCADE")
        update_extension(connection, "easeml_segment")
        connection.execute(sql.SQL("GRANT easeml_segment TO {}").format(sql.Identifier(SERVICE_ROLE)))


def prepare_roles(node: Embedded) -> None:
    """Create database and the coordinator's role on a server, where they are missing."""
    with connect_now(node.dsn(database="postgres")) as connection:
        if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchall():
            connection.execute(f"CREATE DATABASE {DATABASE}")
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [SERVICE_ROLE]).fetchall():
            connection.execute(f"CREATE ROLE {SERVICE_ROLE} LOGIN")
