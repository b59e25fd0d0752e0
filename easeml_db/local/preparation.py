"""Prepares a database for a coordinator: the extension, the coordinator's login role, and slots."""

from __future__ import annotations

from typing import Any

import psycopg

from easeml_db.local.by_owner.updates import Update, update_beside_views
from easeml_db.local.processes import available_cores
from easeml_db.postgres.nodes.node_installation import LOCAL_DDL

SERVICE_ROLE = "easeml_service"
# The role searches no schema of a tenant, and a coordinator that hangs in a transaction loses its locks.
SERVICE_SETTINGS = {"search_path": "pg_catalog, pg_temp", "idle_in_transaction_session_timeout": "'1min'"}

# Slots are told apart from those of instances. Those that are alike keep what somebody gave them; threads that only
# shared out the cores among them share them out anew.
SET_SLOTS = """SELECT easeml.set_slots(%(n)s,
        CASE WHEN k.n_threads <> greatest(1, %(n_cores)s / nullif(k.n_found, 0)) THEN k.n_threads
            ELSE greatest(1, %(n_cores)s / %(n)s) END,
        coalesce(k.device, 'cpu'), k.memory_limit_bytes)
    FROM (
        SELECT a.n_found, CASE WHEN a.n_kinds = 1 THEN a.n_threads END AS n_threads,
            CASE WHEN a.n_kinds = 1 THEN a.device END AS device,
            CASE WHEN a.n_kinds = 1 THEN a.memory_limit_bytes END AS memory_limit_bytes
        FROM (
            SELECT count(*)::integer AS n_found,
                count(DISTINCT (s.device, s.n_threads, s.memory_limit_bytes)) AS n_kinds,
                min(s.n_threads) AS n_threads, min(s.device) AS device, min(s.memory_limit_bytes) AS memory_limit_bytes
            FROM easeml.slots s WHERE s.segment_id = 1 AND NOT s.is_added) a) k
    WHERE k.n_found <> %(n)s"""


def prepare_database(connection: psycopg.Connection[Any], *, n_slots: int | None = None) -> Update:
    """Create the extension, the coordinator's login role and the slots, where they are missing; change the number of
    slots if it is given and another. Return what an update did to users' views.
    """
    connection.execute(LOCAL_DDL)
    connection.execute("CREATE EXTENSION IF NOT EXISTS easeml CASCADE")
    update = update_beside_views(connection)
    if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [SERVICE_ROLE]).fetchall():
        connection.execute(f"CREATE ROLE {SERVICE_ROLE} LOGIN IN ROLE easeml_coordinator")
    for name, value in SERVICE_SETTINGS.items():
        connection.execute(f"ALTER ROLE {SERVICE_ROLE} SET {name} = {value}")
    has_slots = bool(connection.execute("SELECT FROM easeml.slots LIMIT 1").fetchall())
    if n_slots is not None or not has_slots:
        n_cores = available_cores()
        connection.execute(SET_SLOTS, {"n": n_slots or max(1, n_cores), "n_cores": n_cores})
    return update
