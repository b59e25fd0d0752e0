"""Statements that commands say: named queries, and calls of the extension's functions."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from easeml_db.db.queries import queries
from easeml_db.errors import NotFound

Connection = psycopg.Connection[dict[str, Any]]
Row = dict[str, Any]


def rows(connection: Connection, name: str, **values: object) -> list[Row]:
    """All rows of a query in queries/command_line.sql."""
    return connection.execute(queries("command_line")[name].encode(), values).fetchall()


def call(connection: Connection, function: str, *arguments: object, **named: object) -> Any:
    """What a function of schema easeml returns; named arguments that are None are left to their defaults."""
    given = {name: value for name, value in named.items() if value is not None}
    parts: list[sql.Composable] = [sql.Placeholder()] * len(arguments)
    parts += [sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder()) for name in given]
    statement = sql.SQL("SELECT {}({}) AS result").format(sql.Identifier("easeml", function), sql.SQL(", ").join(parts))
    row = connection.execute(statement, [*arguments, *given.values()]).fetchone()
    return row["result"] if row else None


def run_or_newest(connection: Connection, run_id: int | None) -> int:
    """The run that is meant: the one named, else the newest. Raises NotFound when there is none."""
    if run_id is not None:
        read_run(connection, run_id)
        return run_id
    newest: int | None = rows(connection, "newest_run")[0]["run_id"]
    if newest is None:
        raise NotFound("there is no run yet", hint="Start one: easeml select DATASET")
    return newest


def read_run(connection: Connection, run_id: int) -> Row:
    """A run as it is now. Raises NotFound."""
    found = rows(connection, "run", run_id=run_id)
    if not found:
        raise NotFound(f"there is no run {run_id} that you can see", hint="easeml runs lists them.")
    return found[0]
