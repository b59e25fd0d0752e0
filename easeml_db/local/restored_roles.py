"""Roles that a dump names and a cluster lacks: created before the rows are loaded, complete once the database is in
place.

Until then a comment marks each as unfinished, and it cannot log in: an interrupted restore removes them, and the
restore after a killed one continues with its roles.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql

from easeml_db.errors import NotAllowed
from easeml_db.local.dump_files import DumpedRole

Connection = psycopg.Connection[dict[str, Any]]
GROUPS = frozenset({"easeml_admin", "easeml_coordinator", "easeml_tenant", "easeml_reader"})
MARK = "made by easeml restore, which has not finished"
RISEN = "SELECT rolname FROM pg_catalog.pg_roles WHERE rolsuper AND rolname = ANY(%s) ORDER BY 1"
ROLES = """SELECT rolname, pg_catalog.shobj_description(oid, 'pg_authid') IS NOT DISTINCT FROM %s AS is_unfinished
    FROM pg_catalog.pg_roles"""


def check_roles(connection: Connection, roles: Mapping[str, DumpedRole]) -> None:
    """Refuse roles that are superusers here and were none where the dump was made, because what they own would run with
    a superuser's rights. Raises NotAllowed.
    """
    plain = [name for name, role in roles.items() if not role.is_superuser]
    if risen := [row["rolname"] for row in connection.execute(RISEN, [plain]).fetchall()]:
        raise NotAllowed(
            f"superusers here, and none where the dump was made: {', '.join(risen)}",
            hint="Code of theirs in the dump would run with a superuser's rights. Rename the roles here or there.",
        )


def make_roles(
    connection: Connection, roles: Mapping[str, DumpedRole]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Create the missing roles, without passwords, logins and a superuser's rights, as members of easeml's groups and
    of one another: what they own is restored with their rights. Existing roles stay unchanged.

    Return the names, also of roles that a killed restore made, and the other memberships that the dump names, as
    (role, group), because a group of that name may be anything here.
    """
    present = _unfinished(connection)
    new = tuple(name for name in sorted(roles) if present.get(name, True))
    named = [(name, group) for name in new for group in roles[name].groups]
    left = tuple((name, group) for name, group in named if group not in GROUPS and group not in new)
    with connection.transaction():
        for name in sorted(set(new) - set(present)):
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))
            connection.execute(sql.SQL("COMMENT ON ROLE {} IS {}").format(sql.Identifier(name), MARK))
        connection.execute("SET LOCAL client_min_messages = 'warning'")  # a killed restore may have granted some
        for group in sorted(GROUPS - present.keys()):  # the extension would make them, too late for their members
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(group)))
        for name, group in named:
            if (name, group) not in left:
                connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), sql.Identifier(name)))
    return new, left


def complete_roles(connection: Connection, roles: Mapping[str, DumpedRole], new: tuple[str, ...]) -> None:
    """Let the new roles log in that could where the dump was made, and forget that a restore made them."""
    for name in new:
        if roles[name].can_log_in:
            connection.execute(sql.SQL("ALTER ROLE {} LOGIN").format(sql.Identifier(name)))
        connection.execute(sql.SQL("COMMENT ON ROLE {} IS NULL").format(sql.Identifier(name)))


def drop_unfinished_roles(connection: Connection, roles: Mapping[str, DumpedRole]) -> None:
    """Drop the roles that make_roles made, except those that have been given something since."""
    for name, is_unfinished in _unfinished(connection).items():
        if is_unfinished and name in roles:
            with contextlib.suppress(psycopg.errors.DependentObjectsStillExist):
                connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def _unfinished(connection: Connection) -> dict[str, bool]:
    """Return whether each role was made by a restore that has not finished, by name."""
    return {row["rolname"]: row["is_unfinished"] for row in connection.execute(ROLES, [MARK]).fetchall()}
