"""Tables of a node that hold rows of a dataset: which they are, and that the tenant may read them.

Only plain tables are read, so no view and no policy is in between, and only as tenant_rows.py does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.columns import Column, Columns
from easeml_plpy.columns.encoder import Field
from easeml_plpy.packing import packing
from easeml_plpy.packing.on_nodes.request import needed_columns, pack_request
from easeml_plpy.packing.on_nodes.tenant_rows import TenantTable, copied_rows, reader_of
from easeml_plpy.packing.pack_request import PackRequest
from easeml_plpy.server.errors import InvalidArgument, NotAllowed, NotFound, VersionMismatch
from easeml_plpy.server.session import Session, Statement, only_column
from easeml_plpy.server.value_types import Told


class _Table(NamedTuple):
    """A relation: its name as SQL writes it, whether it is a plain table, and whether rows are hidden from some."""

    relation: int
    name: str
    is_plain: bool
    has_policies: bool


class _Rights(NamedTuple):
    """Rights that a role lacks: whether it is unknown or kept out of the schema, and columns it may not read."""

    is_unknown: bool
    is_kept_out: bool
    closed: list[str]


TABLE = Statement(
    """
SELECT c.oid::bigint AS relation, format('%I.%I', n.nspname, c.relname) AS name, c.relrowsecurity AS has_policies,
    c.relkind = 'r' AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) AS is_plain
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)
""",
    ("text",),
    _Table,
)
RIGHTS = Statement(
    """
SELECT r.oid IS NULL AS is_unknown, NOT has_schema_privilege(r.oid, c.relnamespace, 'USAGE') AS is_kept_out,
    ARRAY(SELECT k FROM unnest($3) k WHERE NOT has_column_privilege(r.oid, c.oid, k, 'SELECT')) AS closed
FROM pg_class c LEFT JOIN pg_roles r ON r.rolname = $2 WHERE c.oid = $1
""",
    ("oid", "text", "text[]"),
    _Rights,
)
MAY_READ: Statement[bool] = Statement(
    "SELECT has_table_privilege(r.oid, $1, 'SELECT') AS may_read FROM pg_roles r WHERE r.rolname = $2",
    ("oid", "text"),
    only_column,
)
SERVER_VERSION: Statement[int] = Statement(
    "SELECT current_setting('server_version_num')::int AS number", (), only_column
)
HASHING_VERSION = 140000


class Opened(NamedTuple):
    """The tables of a node, locked against changes, the columns that are read, and who asks."""

    wanted: PackRequest
    tables: Sequence[TenantTable]
    columns: Columns
    inputs: Sequence[Field]
    role: str

    def copied(self, session: Session) -> AbstractContextManager[str]:
        """Copy the rows for a block; return the name of the copy in SQL."""
        return copied_rows(session, self.tables, [column.quoted for column in self.columns.values()], self.role)

    def facts(self) -> dict[str, Any]:
        """Return the types and the kinds of the columns."""
        types = {name: column.type for name, column in self.columns.items()}
        return {"columns": types, "kinds": {name: column.kind for name, column in self.columns.items()}}


def open_tables(session: Session, message: Told) -> Opened:
    """Check what the request names here. Raises NotFound, NotAllowed, InvalidArgument, VersionMismatch."""
    request = pack_request(message)
    check_server(session)
    needed = needed_columns(request)
    tables = [open_table(session, name, message["role"], needed) for name in message["tables"]]
    columns = tables[0][1]
    types = {name: column.type for name, column in columns.items()}
    others = [(table.name, {key: column.type for key, column in other.items()}) for table, other in tables[1:]]
    check_same(types, others, tables[0][0].name)
    packing.check_columns(request, columns)
    session.execute(packing.SETTINGS)
    inputs = [columns_of.input_field(columns[name]) for name in request.inputs]
    return Opened(request, [table for table, _ in tables], columns, inputs, message["role"])


def check_server(session: Session) -> None:
    """Refuse a server that cannot hash rows. Raises VersionMismatch."""
    if session.row(SERVER_VERSION) < HASHING_VERSION:
        raise VersionMismatch("packing rows on a node needs PostgreSQL 14 or newer there")


def open_table(session: Session, name: str, role: str, needed: Sequence[str]) -> tuple[TenantTable, dict[str, Column]]:
    """Lock a table against changes; return it, and the columns that are needed."""
    tables = session.rows(TABLE, name)
    if not tables:
        raise NotFound(f"there is no table {name}", hint="Give schema and name as they are on that server.")
    _checked_columns(session, tables[0], name, role, needed)
    session.execute(f"LOCK TABLE {tables[0].name} IN ACCESS SHARE MODE")
    (table,) = session.rows(TABLE, name)  # it may have been altered meanwhile
    columns = _checked_columns(session, table, name, role, needed)
    return TenantTable(table.relation, table.name, f"ONLY {table.name}"), columns


def _checked_columns(session: Session, table: _Table, name: str, role: str, needed: Sequence[str]) -> dict[str, Column]:
    """Return the columns that are needed. Raises InvalidArgument, NotAllowed."""
    if not table.is_plain:
        raise InvalidArgument(f"{name} is no plain table", hint="Name the table that holds the rows, not a view of it.")
    if table.has_policies:
        raise NotAllowed(f"{name} has row-level security, which the service cannot keep for role {role}")
    columns = columns_of.read_columns(session, table.relation)
    columns_of.require(columns, needed, "columns", name)
    check_rights(session, table.relation, name, role, needed)
    check_reader(session, table.relation, table.name, role)
    return {column: columns[column] for column in needed}


def may_read(session: Session, name: str, role: str, needed: Sequence[str]) -> None:
    """Refuse what a role may not read. Raises NotAllowed."""
    check_rights(session, session.row(TABLE, name).relation, name, role, needed)


def check_rights(session: Session, relation: int, name: str, role: str, needed: Sequence[str]) -> None:
    """Refuse columns of a relation that a role may not read. Raises NotAllowed."""
    rights = session.row(RIGHTS, relation, role, list(needed))
    if rights.is_unknown:
        raise NotAllowed(
            f"there is no role {role}", hint="Create it there, too, and let it read the table: it is who asks."
        )
    if rights.is_kept_out or rights.closed:
        what = "its schema" if rights.is_kept_out else f"column {rights.closed[0]}"
        raise NotAllowed(f"role {role} may not read {what} of {name}", hint="GRANT SELECT, and USAGE on its schema.")


def check_reader(session: Session, relation: int, name: str, role: str) -> None:
    """Refuse a table that the reader of a role may not read. Raises NotAllowed."""
    reader = reader_of(session, role)
    rights = session.row(RIGHTS, relation, reader.role, [])
    if rights.is_kept_out or not session.row(MAY_READ, relation, reader.role):
        raise NotAllowed(
            f"role {reader.name} may not read {name}: it is the role through which rows of role {role} are read",
            hint=f"Its owner, on that server: GRANT SELECT ON {name} TO {reader.name}, and USAGE on its schema.",
        )


def check_same(columns: dict[str, str], others: Iterable[tuple[str, dict[str, str]]], where: str) -> None:
    """Refuse tables that differ in the type of a column. Raises InvalidArgument."""
    for place, other in others:
        for column, sql_type in columns.items():
            if other[column] != sql_type:
                shown = columns_of.shown_type
                raise InvalidArgument(
                    f"column {column!r} is {shown(sql_type)} on {where} and {shown(other[column])} on {place}",
                    hint="The columns of a dataset have one type everywhere: alter one of the tables.",
                )
