"""Relations that a statement reads some pages at a time, so that each step aggregates some thousand rows."""

from __future__ import annotations

from typing import NamedTuple

from easeml_plpy.server.session import Session, Statement, only_column

HAS_PAGES: Statement[bool] = Statement(
    "SELECT c.relkind IN ('r', 'm') AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = c.oid)"
    " AND has_table_privilege(c.oid, 'SELECT') AS has_pages FROM pg_catalog.pg_class c WHERE c.oid = $1",
    ("oid",),
    only_column,
)


class Size(NamedTuple):
    """How many pages and rows a relation has."""

    n_pages: int
    n_rows: int

    def pages_of(self, n_rows: int) -> int:
        """Return how many pages hold about a number of rows."""
        return max(1, self.n_pages * n_rows // max(self.n_rows, 1))


def has_pages(session: Session, relation: int) -> bool:
    """Return whether the relation with this oid has all its rows in pages of its own, and the caller may query these: a
    role that may read only some columns may not.
    """
    return session.row(HAS_PAGES, relation)


def size_of(session: Session, relation: str) -> Size:
    """Return the size of a relation, given by its quoted name."""
    sql = f"SELECT pg_relation_size($1) / 8192 AS n_pages, (SELECT count(*) FROM {relation}) AS n_rows"
    return session.row(Statement(sql, ("regclass",), Size, is_kept=False), relation)


def pages_sql(parameter: str, step: int) -> str:
    """Return SQL of the first of each `step` pages of a relation, which a parameter of type regclass names.

    The statement itself determines the last page, so it finds rows that move meanwhile where its snapshot sees them.
    """
    return f"generate_series(0, pg_relation_size({parameter}) / 8192, {int(step)}) AS page"


def within_sql(step: int) -> str:
    """Return the condition of the rows that are in one of these stretches of pages."""
    return f"ctid >= format('(%s,0)', page)::tid AND ctid < format('(%s,0)', page + {int(step)})::tid"
