"""Tables of a Greenplum cluster that hold rows: which they are, how they are distributed, and who may read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.packing.on_nodes.tables import check_reader, check_rights
from easeml_plpy.server.errors import InvalidArgument, NotFound
from easeml_plpy.server.identifiers import schema_and_name
from easeml_plpy.server.session import Session, Statement


class ClusterTable(NamedTuple):
    """A table: its name in SQL; whether each of its segments has rows of its own, in tables that a session can read;
    the clause of CREATE TABLE that distributes another table alike; and the columns that the clause names.
    """

    relation: int
    name: str
    is_plain: bool
    clause: str
    columns: list[str]


TABLE = Statement(
    """
SELECT c.oid::bigint AS relation, format('%I.%I', n.nspname, c.relname) AS name, d.is_plain, d.clause, d.columns
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL easeml_segment.distribution_of(c.oid) d WHERE n.nspname = $1 AND c.relname = $2
""",
    ("text", "text"),
    ClusterTable,
)


def open_table(session: Session, name: str, role: str, needed: Sequence[str]) -> ClusterTable:
    """Lock a table against changes, and return it. Raises NotFound, InvalidArgument, NotAllowed."""
    place = schema_and_name(name)
    tables = session.rows(TABLE, *place)
    if not tables:
        raise NotFound(f"there is no table {name}", hint="Give schema and name as they are in the cluster.")
    if tables[0].is_plain:
        check_reader(session, tables[0].relation, tables[0].name, role)
        session.execute(f"LOCK TABLE {tables[0].name} IN ACCESS SHARE MODE")
        tables = session.rows(TABLE, *place)
    table = tables[0]
    if not table.is_plain:
        raise InvalidArgument(
            f"{name} is no table whose rows are distributed",
            hint="Name a table of the cluster's own, not a view, nor an external, foreign or replicated table.",
        )
    columns_of.require(columns_of.read_columns(session, table.relation), needed, "columns", name)
    check_rights(session, table.relation, name, role, needed)
    return table
