"""A table into PostgreSQL, with the types that a user would give its columns: dates as timestamptz, texts as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg import sql

from easeml_experiments.experiment_server import Session
from easeml_experiments.tables.table import Frame, Table

KEY = "row_number"  # of the frame, from 0; no input
TYPES = {"b": "boolean", "i": "bigint", "u": "bigint", "f": "double precision", "M": "timestamptz"}


def load(session: Session, table: Table, frame: Frame) -> None:
    """Create a table of the declared name, and fill it."""
    columns = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(sql_type(frame[name]))) for name in frame.columns]
    definition = sql.SQL(", ").join([sql.SQL("{} bigint PRIMARY KEY").format(sql.Identifier(KEY)), *columns])
    target = sql.Identifier(table.name)
    session.execute(sql.SQL("CREATE TABLE {} ({})").format(target, definition))
    with session.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(target)) as copy:
        for row in _rows(frame):
            copy.write_row(row)
    session.execute(sql.SQL("ANALYZE {}").format(target))


def sql_type(column: Any) -> str:
    """Return the SQL type of a column of a frame."""
    return TYPES.get(column.dtype.kind, "text")


def _rows(frame: Frame) -> Iterator[tuple[Any, ...]]:
    known = frame.astype(object).where(frame.notna(), None)
    yield from known.itertuples(name=None)
