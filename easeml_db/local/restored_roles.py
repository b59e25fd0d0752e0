"""Roles that a dump names and a cluster lacks: created before the rows are loaded, complete once the database is in
place.

Until then a comment marks each as unfinished: an interrupted restore removes them, and the restore after a killed one
continues with its roles.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql

from easeml_db.local.dump_files import DumpedRole

Connection = psycopg.Connection[dict[str, Any]]
GROUPS = frozenset({"easeml_admin", "easeml_coordinator", "easeml_tenant", "easeml_reader"})
MARK = "made by easeml restore, which has not finished"
ROLES = """SELECT rolname, pg_catalog.shobj_description(oid, 'pg_authid') IS NOT DISTINCT FROM %s AS is_unfinished
    FROM pg_catalog.pg_roles"""


def make_roles(connection: Connection, roles: Mapping[str, DumpedRole]) -> tuple[str, ...]:
    """Create the missing roles, without passwords and without a superuser's rights; return their names, and the roles
    that a killed restore made.
    """
    present = _unfinished(connection)
    with connection.transaction():
        for name in sorted(set(roles) - set(present)):
            login = sql.SQL("LOGIN" if roles[name].can_log_in else "NOLOGIN")
            connection.execute(sql.SQL("CREATE ROLE {} {}").format(sql.Identifier(name), login))
            connection.execute(sql.SQL("COMMENT ON ROLE {} IS {}").format(sql.Identifier(name), MARK))
    return tuple(name for name in sorted(roles) if present.get(name, True))


def complete_roles(
    connection: Connection, roles: Mapping[str, DumpedRole], new: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Make new roles members of easeml's groups and of one another; existing roles stay unchanged. Return the other
    memberships that the dump names, as (role, group), because a group of that name may be anything here.
    """
    left = []
    for name in new:
        for group in roles[name].groups:
            if group in GROUPS or group in new:
                connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), sql.Identifier(name)))
            else:
                left.append((name, group))
        connection.execute(sql.SQL("COMMENT ON ROLE {} IS NULL").format(sql.Identifier(name)))
    return tuple(left)


def drop_unfinished_roles(connection: Connection, roles: Mapping[str, DumpedRole]) -> None:
    """Drop the roles that make_roles made, except those that have been given something since."""
    for name, is_unfinished in _unfinished(connection).items():
        if is_unfinished and name in roles:
            with contextlib.suppress(psycopg.errors.DependentObjectsStillExist):
                connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def _unfinished(connection: Connection) -> dict[str, bool]:
    """Return whether each role was made by a restore that has not finished, by name."""
    return {row["rolname"]: row["is_unfinished"] for row in connection.execute(ROLES, [MARK]).fetchall()}
