"""Checks a server before easeml_segment is installed there, and updates an older version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from easeml_db.errors import NotAllowed, NotFound, VersionMismatch
from easeml_db.postgres.versions import update_extension

Connection = psycopg.Connection[dict[str, Any]]
# A node of a Citus cluster keeps our extensions to itself; other servers ignore this setting.
LOCAL_DDL = "SELECT set_config('citus.enable_ddl_propagation', 'off', false)"
ROLE = "SELECT rolname::text AS name, rolsuper AS is_superuser FROM pg_catalog.pg_roles WHERE rolname = %s"


def check_installer(service: str, connection: Connection, grant: str | None) -> None:
    """Refuse a service that cannot install, and a role that is not there, before anything is written.

    Raises NotAllowed, NotFound.
    """
    (role,) = connection.execute(ROLE, [connection.info.user]).fetchall()
    if not role["is_superuser"]:
        raise NotAllowed(
            f"service {service}: its role {role['name']} is no superuser there",
            hint="Install through another service, whose role is one; --grant names the role of this one.",
        )
    if grant is not None and not connection.execute(ROLE, [grant]).fetchall():
        raise NotFound(
            f"service {service}: there is no role {grant} on that server",
            hint="On that server: CREATE ROLE with that name and LOGIN, then install again.",
        )


def let_work(connection: Connection, role: str) -> None:
    """Let a role work there as a coordinator does: packing makes temporary tables, which PUBLIC may be forbidden."""
    name, database = sql.Identifier(role), sql.Identifier(connection.info.dbname)
    connection.execute(sql.SQL("GRANT easeml_segment TO {}").format(name))
    connection.execute(sql.SQL("GRANT CONNECT, TEMPORARY ON DATABASE {} TO {}").format(database, name))


def add_readers(connection: Connection, tenants: Sequence[str]) -> None:
    """Create the roles through which the rows of tenants are read there, where they are missing."""
    for tenant in tenants:
        (row,) = connection.execute("SELECT easeml_segment.reader_of(%s)::text AS name", [tenant]).fetchall()
        reader = sql.Identifier(row["name"])
        if not connection.execute(ROLE, [row["name"]]).fetchall():
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(reader))
        connection.execute(sql.SQL("GRANT easeml_rows TO {}").format(reader))
        connection.execute(sql.SQL("GRANT {} TO easeml_segment").format(reader))


def install_segment(service: str, connection: Connection) -> None:
    """Create the extension of a node, or bring it to this version. Raises VersionMismatch."""
    connection.execute(LOCAL_DDL)
    connection.execute("CREATE EXTENSION IF NOT EXISTS easeml_segment CASCADE")
    update_segment(service, connection)


def update_segment(service: str, connection: Connection) -> None:
    """Bring the extension of a node to this version. Raises VersionMismatch where no way leads there."""
    try:
        update_extension(connection, "easeml_segment")
    except VersionMismatch as error:
        hint = (
            "On that server: DROP EXTENSION easeml_segment CASCADE, then install again. What it kept is made anew;"
            " datasets whose rows lie there need easeml.refresh_dataset."
        )
        raise VersionMismatch(f"service {service}: {error.message}", detail=error.detail, hint=hint) from error
