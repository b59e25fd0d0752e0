"""Rights by which any role could fill the lock table of a server: who has them by default, and how to take them away.

PostgreSQL gives them to PUBLIC. A private server takes them away; `easeml install --close-locks` does so on another
server, and `easeml doctor` prints the statements. A dump of the database contains the rights of functions, not those of
the database itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
from psycopg import sql

GROUPS = ("easeml_tenant", "easeml_reader", "easeml_coordinator", "easeml_admin", "easeml_segment")
"""The last one exists where a node is."""
THERE = "SELECT rolname FROM pg_catalog.pg_roles WHERE rolname = ANY(%s)"
MAX_LOCKS = 512
"""`max_locks_per_transaction` of a private server. A statement locks every table that it reads, with partitions and
indexes; this is room for some hundred of them in each session at once, in 37 MB more of shared memory than with 64.
"""
# Locks of a key, and large objects: to unlink one takes a lock, and writing them gives savepoints locks of their own.
OPEN = """
SELECT k.what, format('REVOKE EXECUTE ON FUNCTION %%s FROM PUBLIC;', string_agg(format('pg_catalog.%%I(%%s)', p.proname,
        pg_catalog.pg_get_function_identity_arguments(p.oid)), ', ' ORDER BY p.oid)) AS statement
FROM (VALUES ('advisory locks', '^pg_(try_)?advisory_(xact_)?lock'),
    ('large objects', '^lo_(creat|create|from_bytea)$')) k(what, names)
JOIN pg_catalog.pg_proc p ON p.proname ~ k.names AND p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
    AND pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE')
GROUP BY k.what
UNION ALL
SELECT 'temporary tables', format('REVOKE TEMPORARY ON DATABASE %%1$I FROM PUBLIC;'
        ' GRANT TEMPORARY ON DATABASE %%1$I TO %%2$s;', pg_catalog.current_database(),
    (SELECT string_agg(r.rolname, ', ' ORDER BY pg_catalog.array_position(%(groups)s::text[], r.rolname::text))
        FROM pg_catalog.pg_roles r WHERE r.rolname = ANY(%(groups)s::text[])))
WHERE pg_catalog.has_database_privilege('public', pg_catalog.current_database(), 'TEMPORARY')
ORDER BY 1
"""
IS_OPEN = "SELECT pg_catalog.has_database_privilege('public', %s::text, 'CONNECT') AS may_connect"
SHUT_OUT = """
SELECT r.rolname FROM pg_catalog.pg_roles r WHERE r.rolcanlogin
    AND NOT pg_catalog.has_database_privilege(r.oid, pg_catalog.current_database(), 'CONNECT')
"""


class OpenRight(NamedTuple):
    """A way to take locks that everybody has, and the statement that closes it."""

    what: str
    statement: str


def open_rights(connection: psycopg.Connection[dict[str, Any]]) -> list[OpenRight]:
    """Return what everybody may do in a database."""
    return [OpenRight(row["what"], row["statement"]) for row in connection.execute(OPEN, {"groups": list(GROUPS)})]


def close_locks(connection: psycopg.Connection[dict[str, Any]]) -> None:
    """Take from PUBLIC what `open_rights` finds; members of easeml's groups keep temporary tables."""
    for right in open_rights(connection):
        connection.execute(right.statement.encode())


def close_private(connection: psycopg.Connection[dict[str, Any]]) -> None:
    """Close the database of a private server also to roles that nobody has let in, and the server's other databases.

    Roles that could log in until now still can. easeml_owner lets in whom a tenant grants a dataset (grants.sql).
    """
    close_locks(connection)
    for other in ("postgres", "template1"):
        if connection.execute(IS_OPEN, [other]).fetchall()[0]["may_connect"]:
            connection.execute(f"REVOKE ALL ON DATABASE {other} FROM PUBLIC".encode())
    name = connection.info.dbname
    if not connection.execute(IS_OPEN, [name]).fetchall()[0]["may_connect"]:
        return
    database = sql.Identifier(name)
    with connection.transaction():
        connection.execute(sql.SQL("REVOKE CONNECT ON DATABASE {} FROM PUBLIC").format(database))
        there = [row["rolname"] for row in connection.execute(THERE, [list(GROUPS)])]
        groups = sql.SQL(", ").join(map(sql.Identifier, there))
        connection.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, groups))
        connection.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO easeml_owner WITH GRANT OPTION").format(database))
        for row in connection.execute(SHUT_OUT).fetchall():
            role = sql.Identifier(row["rolname"])
            connection.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, role))
