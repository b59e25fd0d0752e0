"""Rows that a role may see, read over a connection of that role: the console adds no rights."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db.errors import InvalidArgument, NotAllowed, NotFound
from easeml_db.postgres.connection import connect_now, not_a_connection_string, rows_held, server_error
from easeml_db.postgres.queries import queries

Connection = psycopg.Connection[dict[str, Any]]
Row = dict[str, Any]
NO_FILE = "/dev/null/none"
"""No password file and no certificate: the driver would read those in the home of the console's owner."""
NO_OWNER_FILES = {"passfile": NO_FILE, "sslcert": NO_FILE, "sslkey": NO_FILE, "gssencmode": "disable"}
NO_TICKETS = {"require_auth": "!gss,!sspi"} if psycopg.pq.version() >= 160_000 else {}
"""Of Kerberos, with which a server would take every user for the owner; older drivers cannot say so."""
BOUNDS = """SET statement_timeout = '20s'; SET lock_timeout = '1s'; SET idle_in_transaction_session_timeout = '5s'"""
"""Whatever the role has for itself: a page holds a thread of the console as long as its statements last."""
CONNECT_SECONDS = "5"
OF_OTHERS = ("user", "password", "passfile", "sslcert", "sslkey", "service", "options")
"""Settings of a connection string that would let a role in without its own password, or change what it does."""


def check_dsn(dsn: str) -> None:
    """Refuse a connection string from which nothing would be left to say where the server is. Raises InvalidArgument.

    A service may hold user and password of the console's owner, so no role logs in through it.
    """
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise not_a_connection_string(error) from error
    if given.get("service"):
        raise InvalidArgument(
            f"--dsn: the console takes no service, and got service={given['service']}",
            hint="Give host, port and dbname instead; each user logs in as a role of their own.",
        )


def dsn_of_role(dsn: str, role: str, password: str) -> str:
    """Return the connection string with which a role logs in, without anything that would authenticate another role.

    Raises InvalidArgument where the driver would take another role than was given: for none that of the operating
    system's user, and of a text only what comes before a NUL, which drops all settings that follow, too.
    """
    if not role or "\0" in role + password:
        raise InvalidArgument("expected the name of a role, and no NUL in it or in the password")
    given = {name: value for name, value in conninfo_to_dict(dsn).items() if name not in OF_OTHERS}
    tickets = {} if "PGREQUIREAUTH" in os.environ else NO_TICKETS  # an owner who demands something may demand more
    login = {"user": role, **NO_OWNER_FILES, **({"password": password} if password else {})}
    return make_conninfo(**{"connect_timeout": CONNECT_SECONDS, **tickets, **given, **login})  # type: ignore[arg-type]


@contextmanager
def connected(dsn: str) -> Iterator[Connection]:
    """Open a connection of a role; raise the server's errors as the project's.

    Raises NotAllowed where the server asks for no password, as it would let anybody in as that role.
    """
    with connect_now(dsn, "easeml console") as connection:
        if not connection.pgconn.used_password:
            raise _unproven(connection.info)
        try:
            connection.execute(BOUNDS)
            yield connection
        except psycopg.errors.LockNotAvailable as error:
            raise rows_held(error) from error
        except psycopg.Error as error:
            raise server_error(error) from error


def _unproven(server: psycopg.ConnectionInfo) -> NotAllowed:
    """Return the error that a server lets roles in unasked, and what to change."""
    place = "its socket" if server.host.startswith("/") else server.host
    return NotAllowed(
        f"the server asks role {server.user} for no password at {place}, so whoever comes could be that role."
        " Have its pg_hba.conf say scram-sha-256 there, or start the console with --dsn and a host where it does,"
        " such as host=127.0.0.1."
    )


def rows(connection: Connection, name: str, **values: object) -> list[Row]:
    """Return all rows of a query in queries/console.sql, with None for NaN and infinities."""
    records = connection.execute(queries("console")[name].encode(), values).fetchall()
    return [{key: _finite(value) for key, value in row.items()} for row in records]


def one(connection: Connection, name: str, what: str, **values: object) -> Row:
    """Return the only row of a query. Raises NotFound, which names what does not exist for this role."""
    records = rows(connection, name, **values)
    if not records:
        raise NotFound(f"there is no {what} that you can see")
    return records[0]


def examples(connection: Connection, task: Row, before: int | None, n_rows: int) -> list[Row]:
    """Return the newest examples of a task with their pictures left out, those before a number if one is given."""
    shown = [entry["column"] for entry in task["inputs"] if entry["type"] != "bytea"]
    if task["output"] is None or task["output"]["type"] != "bytea":
        shown.append("output")
    statement = sql.SQL(
        "SELECT example_id, is_on, fed_at, {} FROM {} WHERE %(before)s::bigint IS NULL OR example_id < %(before)s"
        " ORDER BY example_id DESC LIMIT %(n_rows)s"
    ).format(sql.SQL(", ").join(map(sql.Identifier, shown)), _table(task))
    return connection.execute(statement, {"before": before, "n_rows": n_rows}).fetchall()


def example_bytes(connection: Connection, task: Row, example_id: int, column: str) -> bytes:
    """Return the bytes of one picture. Raises NotFound."""
    statement = sql.SQL("SELECT {} AS pixels FROM {} WHERE example_id = %s").format(
        sql.Identifier(column), _table(task)
    )
    row = connection.execute(statement, [example_id]).fetchone()
    if row is None or row["pixels"] is None:
        raise NotFound(f"there is no example {example_id} that you can see")
    return bytes(row["pixels"])


def switch(connection: Connection, task: Row, example_id: int, *, is_on: bool) -> None:
    """Switch one example off or on. Raises NotFound."""
    statement = sql.SQL("UPDATE {} SET is_on = %s WHERE example_id = %s").format(_table(task))
    if connection.execute(statement, [is_on, example_id]).rowcount == 0:
        raise NotFound(f"there is no example {example_id} that you can see")


def _table(task: Row) -> sql.Identifier:
    return sql.Identifier(*str(task["examples"]).split("."))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
