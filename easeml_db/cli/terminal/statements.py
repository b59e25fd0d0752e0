"""Statements that commands execute: named queries, and calls of the extension's functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from easeml_db.errors import NotFound
from easeml_db.postgres.queries import queries

Connection = psycopg.Connection[dict[str, Any]]
Row = dict[str, Any]
MOST_INTEGER = 2**31 - 1


def rows(connection: Connection, name: str, **values: object) -> list[Row]:
    """Return all rows of a query in queries/command_line.sql."""
    return connection.execute(queries("command_line")[name].encode(), values).fetchall()


def call(connection: Connection, function: str, *arguments: object, **named: object) -> Any:
    """Call a function of schema easeml and return its value; arguments by name that are None keep their defaults."""
    what, values = _call_of(function, arguments, named)
    row = connection.execute(sql.SQL("SELECT {} AS result").format(what), values).fetchone()
    return row["result"] if row else None


def call_rows(connection: Connection, function: str, *arguments: object, **named: object) -> list[Row]:
    """Call a function of schema easeml that returns a set, and return all rows."""
    what, values = _call_of(function, arguments, named)
    return connection.execute(sql.SQL("SELECT * FROM {}").format(what), values).fetchall()


def _call_of(
    function: str, arguments: Sequence[object], named: Mapping[str, object]
) -> tuple[sql.Composable, list[object]]:
    given = {name: value for name, value in named.items() if value is not None}
    parts: list[sql.Composable] = [sql.Placeholder()] * len(arguments)
    parts += [sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder()) for name in given]
    what = sql.SQL("{}({})").format(sql.Identifier("easeml", function), sql.SQL(", ").join(parts))
    return what, [_untyped(value) for value in (*arguments, *given.values())]


def _untyped(value: object) -> object:
    """Return a number that no integer holds as text: the server says so, and not that there is no such function."""
    return str(value) if isinstance(value, int) and abs(value) > MOST_INTEGER else value


def run_or_newest(connection: Connection, run_id: int | None) -> int:
    """Return the run's number, or that of the newest run where none is given. Raises NotFound."""
    if run_id is not None:
        read_run(connection, run_id)
        return run_id
    newest: int | None = rows(connection, "newest_run")[0]["run_id"]
    if newest is None:
        raise NotFound("there is no run yet", hint="Start one: easeml select DATASET")
    return newest


def read_run(connection: Connection, run_id: int) -> Row:
    """Return a run as it is now. Raises NotFound."""
    runs = rows(connection, "run", run_id=run_id)
    if not runs:
        raise NotFound(f"there is no run {run_id} that you can see", hint="easeml run lists them.")
    return runs[0]
