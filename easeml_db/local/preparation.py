"""What a database needs before a coordinator can serve it: the extension, the coordinator's login role, and slots."""

from __future__ import annotations

from typing import Any

import psycopg

from easeml_db.local.processes import available_cores
from easeml_db.postgres.nodes import OWN_DDL
from easeml_db.postgres.versions import update_extension

SERVICE_ROLE = "easeml_service"
# No schema of a tenant is looked into, and a coordinator that hangs within a transaction does not keep its locks.
SERVICE_SETTINGS = {"search_path": "pg_catalog, pg_temp", "idle_in_transaction_session_timeout": "'1min'"}


def prepare_database(connection: psycopg.Connection[Any], *, n_slots: int | None = None) -> None:
    """Create the extension, the coordinator's login role and the slots, where they are missing."""
    connection.execute(OWN_DDL)
    connection.execute("CREATE EXTENSION IF NOT EXISTS easeml CASCADE")
    update_extension(connection)
    if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [SERVICE_ROLE]).fetchall():
        connection.execute(f"CREATE ROLE {SERVICE_ROLE} LOGIN IN ROLE easeml_coordinator")
    for name, value in SERVICE_SETTINGS.items():
        connection.execute(f"ALTER ROLE {SERVICE_ROLE} SET {name} = {value}")
    has_slots = bool(connection.execute("SELECT FROM easeml.slots LIMIT 1").fetchall())
    if n_slots is not None or not has_slots:
        n_cores = available_cores()
        n_slots = n_slots or max(1, n_cores)
        connection.execute("SELECT easeml.set_slots(%s, %s)", [n_slots, max(1, n_cores // n_slots)])
