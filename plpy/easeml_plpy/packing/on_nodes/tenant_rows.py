"""On a node: reads rows of tenants' tables as a role that has nothing else to read.

To plan a query, PostgreSQL may call functions that a table's owner has put into indexes, statistics and constraints. So
the service plans no query on such a table. It makes a materialized view of the rows, gives it to the reader of the
tenant who asks, and refreshes it: PostgreSQL plans and reads as the view's owner, in a security-restricted operation,
where a function can neither become another role nor leave anything behind in the session. The view ends with the
transaction at the latest; what is read afterwards is the copy.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from easeml_plpy.packing.on_nodes.planted import check_nothing_planted
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.session import Session, Statement, only_column


class Reader(NamedTuple):
    """The role through which the rows of a tenant are read: its name, and that in SQL; whether it is there with the
    service as its member; and whether it has more than rows to read.
    """

    role: str
    name: str
    is_there: bool
    has_more: bool


READER = Statement(
    """
SELECT w.name AS role, quote_ident(w.name) AS name, r.oid IS NOT NULL AND pg_has_role(r.oid, 'USAGE') AS is_there,
    coalesce(r.rolcanlogin OR r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication
        OR (row_to_json(r) ->> 'rolbypassrls')::boolean, false)
    OR EXISTS (SELECT 1 FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
        WHERE m.member = r.oid AND g.rolname <> 'easeml_rows')
    OR EXISTS (SELECT 1 FROM pg_shdepend d
        WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = r.oid AND d.deptype = 'o') AS has_more
FROM (SELECT easeml_segment.reader_of($1) AS name) w LEFT JOIN pg_roles r ON r.rolname = w.name
""",
    ("text",),
    Reader,
)
# After functions of others may have run as the reader: the view is as it was made, and neither the reader nor its group
# owns anything else.
IS_UNTOUCHED: Statement[bool] = Statement(
    """
SELECT c.relkind = 'm' AND NOT c.relhasindex AND NOT c.relhastriggers
    AND (SELECT count(*) = 1 FROM pg_rewrite w WHERE w.ev_class = c.oid)
    AND (SELECT count(*) = 1 FROM pg_shdepend d
        WHERE d.refclassid = 'pg_authid'::regclass AND d.deptype = 'o'
            AND d.refobjid IN (SELECT g.oid FROM pg_roles g WHERE g.oid = c.relowner OR g.rolname = 'easeml_rows'))
    AS is_untouched
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'easeml_rows' AND c.relname = $1 AND c.oid = $2
""",
    ("text", "oid"),
    only_column,
)
RELATION: Statement[int] = Statement("SELECT $1::regclass::oid::bigint AS oid", ("text",), only_column)


class TenantTable(NamedTuple):
    """A table that a role has asked for: its oid, its name in SQL, and what stands behind FROM for its rows."""

    relation: int
    name: str
    rows: str


def reader_of(session: Session, role: str) -> Reader:
    """Return the role through which the rows of a role are read. Raises NotAllowed."""
    reader = session.row(READER, role)
    if not reader.is_there:
        raise NotAllowed(
            f"there is no role {reader.name} that the service is a member of, and rows of role {role} are read as it",
            hint=f"On that server, an administrator: CREATE ROLE {reader.name} IN ROLE easeml_rows ROLE easeml_segment"
            f" (or easeml segment install ... --reader {role}); the owner: GRANT SELECT ON the table TO {reader.name}.",
        )
    if reader.has_more:
        raise NotAllowed(
            f"role {reader.name} can log in, owns something, or has further rights: it is only to read rows",
            hint=f"On that server, as an administrator: DROP OWNED BY {reader.name}; DROP ROLE {reader.name}; then"
            f" CREATE ROLE {reader.name} IN ROLE easeml_rows ROLE easeml_segment.",
        )
    return reader


@contextmanager
def copied_rows(
    session: Session, tables: Sequence[TenantTable], columns: Sequence[str], role: str, *, place: str = ""
) -> Iterator[str]:
    """Copy columns of tables for a block, as the reader of a role; return the name of the copy in SQL.

    `columns`: what is selected. `place`: how a cluster distributes the copy. Raises NotAllowed.
    """
    for table in tables:
        check_nothing_planted(session, table.relation, table.name, role)
    reader = reader_of(session, role).name
    rows = " UNION ALL ".join(f"SELECT {', '.join(columns)} FROM {table.rows}" for table in tables)
    alone = f"copy_{secrets.token_hex(8)}"
    name = f"easeml_rows.{alone}"
    session.execute(f"CREATE MATERIALIZED VIEW {name} AS {rows} WITH NO DATA {place}")
    relation = session.row(RELATION, name)
    session.execute(f"ALTER MATERIALIZED VIEW {name} OWNER TO {reader}")
    session.execute(f"REFRESH MATERIALIZED VIEW {name}")
    if session.rows(IS_UNTOUCHED, alone, relation) != [True]:
        raise NotAllowed(f"a function has run as role {reader} while rows of role {role} were read, and made something")
    yield name
    session.execute(f"DROP MATERIALIZED VIEW {name}")
