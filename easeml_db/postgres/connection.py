"""Opening connections, and turning the server's errors into the project's own classes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, LiteralString, TypeVar

import psycopg

from easeml_db.errors import (
    EasemlError,
    InvalidArgument,
    NotReady,
    OutOfSpace,
    RowsHeld,
    ServerBusy,
    ServerUnavailable,
    SlotLost,
    TrialFailed,
    from_sqlstate,
)
from easeml_loaders.passwords import guarded

Kind = TypeVar("Kind", bound=psycopg.AsyncConnection[dict[str, Any]])
SAFE_PATH: LiteralString = "pg_catalog, pg_temp"  # a tenant may make objects anywhere else, by names that are ours
PATH_SETTING = {"search_path": SAFE_PATH.replace(" ", "")}
# What the service does has limits of its own: a timeout of the database is meant for its users.
SERVICE_SETTINGS = {"statement_timeout": "0"}
UNMET_DEMANDS = ("authentication method requirement", "channel binding")  # in libpq's messages
DEMANDS = (
    "It is to prove by SCRAM that it knows it. If it is the right server and cannot, say so in {}:"
    " require_auth=md5 (or password, none), channel_binding=disable."
)
PREFIX = re.compile(r"^((plpy\.(SPI)?Error|spiexceptions\.\w+): )+")  # what PL/Python puts before a message
MISSING = ("3F000", "42P01", "42883")  # a schema, a relation or a function that is not there
MISSING_SCHEMA = re.compile(r"\beaseml\b")
# What all sessions share has run out: room in the lock table (53200), connections; or the server is starting.
BUSY = ("53000", "53200", "53300", "57P03")
# Memory of the session's own process (53200, too), which its slot limits: an attempt of the trial.
OWN_MEMORY, ALLOCATORS = re.compile(r"^out of memory\b"), ("aset.c", "generation.c", "mcxt.c", "slab.c")
# A cancel, a shutdown, a crash of a neighbour, a lost connection, a deadlock, lack of memory or of room for temporary
# files: the unit may run again.
LOST = re.compile(r"^(57014|57P0[1-5]|08...|40...|53...|25P03|58...)$")
REPLACED = re.compile(
    r"^(cache lookup failed for|could not open relation with OID)|\beaseml_segment\b.* does not exist"
)


async def connect(dsn: str, application_name: str, **settings: str) -> psycopg.AsyncConnection[dict[str, Any]]:
    """Open an autocommit connection with server settings. Raises ServerUnavailable if there is no server."""
    return await connect_as(psycopg.AsyncConnection[dict[str, Any]], dsn, application_name, settings)


async def connect_as(kind: type[Kind], dsn: str, application_name: str, settings: Mapping[str, str]) -> Kind:
    """Open a connection of a class. Raises ServerUnavailable if there is no server."""
    options = " ".join(f"-c {name}={value}" for name, value in {**SERVICE_SETTINGS, **settings, **PATH_SETTING}.items())
    try:
        return await kind.connect(
            guarded(dsn), autocommit=True, application_name=application_name, options=options,
            row_factory=psycopg.rows.dict_row,
        )  # fmt: skip
    except psycopg.OperationalError as error:
        raise unavailable(error) from error
    except psycopg.ProgrammingError as error:
        raise not_a_connection_string(error) from error


def connect_now(
    dsn: str, application_name: str = "easeml", *, search_path: LiteralString | None = SAFE_PATH
) -> psycopg.Connection[dict[str, Any]]:
    """Open a plain autocommit connection, for the command line.

    search_path: None leaves that of the server, for statements that name tables as their user does.
    """
    try:
        connection = psycopg.Connection.connect(
            guarded(dsn), autocommit=True, application_name=application_name, row_factory=psycopg.rows.dict_row
        )
        if search_path is not None:
            connection.execute(f"SET search_path = {search_path}")
    except psycopg.OperationalError as error:
        raise unavailable(error) from error
    except psycopg.ProgrammingError as error:
        raise not_a_connection_string(error) from error
    return connection


def not_a_connection_string(error: psycopg.Error) -> InvalidArgument:
    """Return the error for an invalid connection string, with an example of a valid one and the driver's message."""
    return InvalidArgument(
        f"--dsn: expected a connection string: {' '.join(str(error).split())}",
        hint="For example 'host=localhost dbname=shop user=anna', or postgresql://anna@localhost/shop.",
    )


def unavailable(error: psycopg.Error) -> ServerUnavailable:
    """Return the error that the server cannot be reached, with the driver's message."""
    text = " ".join(str(error).split())
    if any(words in text for words in UNMET_DEMANDS):
        return ServerUnavailable(
            f"the server was not given the password, for it does not prove by SCRAM that it knows it: {text}",
            hint=DEMANDS.format("--dsn"),
        )
    return ServerUnavailable(
        f"the server cannot be reached: {text}", hint="Start a private one with easeml up, or check --dsn / EASEML_DSN."
    )


def primary(error: psycopg.Error) -> str:
    """Return an error's message in one line, without details, context and PL/Python's prefix."""
    return PREFIX.sub("", error.diag.message_primary or " ".join(str(error).split()))


def out_of_space(error: psycopg.Error) -> OutOfSpace:
    """Return the error that a disk of the server is full, with the server's message."""
    return OutOfSpace(f"the server's disk is full: {primary(error)}", hint="Make room; work goes on by itself.")


def is_busy(error: psycopg.Error) -> bool:
    """Return whether the server lacks what all sessions share, for which the statement is not to blame."""
    is_own = OWN_MEMORY.search(primary(error)) or error.diag.source_file in ALLOCATORS
    return error.sqlstate in BUSY and not (error.sqlstate == "53200" and is_own)


def server_busy(error: psycopg.Error) -> ServerBusy:
    """Return the error that the server lacks what all sessions share."""
    return ServerBusy(
        f"the server is short of locks or connections: {primary(error)}",
        hint="Nothing was written; work goes on by itself. easeml doctor says who fills the lock table.",
    )


def rows_held(error: psycopg.Error) -> RowsHeld:
    """Return the error that somebody's open transaction has locked the rows to be written."""
    return RowsHeld(f"an open transaction is in the way: {primary(error)}", hint="Commit it, or roll it back.")


def server_error(error: psycopg.Error) -> EasemlError:
    """Return the error that the server raised as the class it has in Python; others keep their message and code."""
    message = primary(error)
    if error.sqlstate and error.sqlstate.startswith("ML"):
        return from_sqlstate(error.sqlstate, message, error.diag.message_detail, error.diag.message_hint)
    if error.sqlstate in MISSING and MISSING_SCHEMA.search(message):
        return NotReady(
            f"this database has no extension easeml: {message}",
            hint="Install it (easeml install --dsn ...), or name another database with --dsn or EASEML_DSN.",
        )
    hint = "Write it as SQL does: '90 days', '12 hours'." if "type interval" in message else error.diag.message_hint
    return EasemlError(message, detail=error.diag.message_detail, hint=hint)


def is_replaced(error: psycopg.Error) -> bool:
    """Return whether a statement failed on functions or tables that have been dropped, or dropped and recreated."""
    return error.sqlstate in ("XX000", *MISSING) and bool(REPLACED.search(error.diag.message_primary or ""))


def unit_error(error: psycopg.Error) -> EasemlError:
    """Return the error that says whose fault a failed unit was: OutOfSpace, ServerBusy or RowsHeld (run it again
    later), SlotLost (run it again now), an error of class ML, or the trial's own.
    """
    if is_busy(error):
        return server_busy(error)
    if error.sqlstate == "53100":
        return out_of_space(error)
    if error.sqlstate == "55P03":
        return rows_held(error)
    if error.sqlstate is None or LOST.match(error.sqlstate) or is_replaced(error):
        return SlotLost(primary(error) or type(error).__name__)
    if error.sqlstate.startswith("ML"):
        return server_error(error)
    return TrialFailed(primary(error))
