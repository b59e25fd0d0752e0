"""A session of the coordinator that runs named queries; the stores share one, and with it the lease number."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

import psycopg

from easeml_db.decisions.retry import BUSY_PAUSE
from easeml_db.errors import EasemlError, InvalidData, NotFound, RowsHeld, ServerBusy
from easeml_db.postgres.connection import (
    connect,
    is_busy,
    out_of_space,
    rows_held,
    server_busy,
    server_error,
    unavailable,
)
from easeml_db.postgres.queries import queries
from easeml_db.postgres.versions import EXTENSION, check_version

LOCK_TIMEOUT = "250ms"  # nobody's open transaction keeps a session of the service waiting longer
ROWS_AT_ONCE = 250  # to read 1000 with their JSON takes ten milliseconds
BUSY_SECONDS = 30.0  # for so long a statement is tried again while the lock table is full
SETTINGS = {"lock_timeout": LOCK_TIMEOUT, "idle_session_timeout": "0"}


class StoreSession:
    """Runs the named queries of the coordinator, a transaction each, and raises the project's own errors."""

    def __init__(self, dsn: str, application_name: str = "easeml coordinator", **settings: str) -> None:
        self.dsn, self._application_name = dsn, application_name
        self._settings = SETTINGS | settings
        self.lease_number = 0  # until the lease is acquired

    async def open(self) -> None:
        """Connect. Raises VersionMismatch where the extension is missing or of another version."""
        self._connection = await connect(self.dsn, self._application_name, **self._settings)
        try:
            with _errors_of_ours():
                row = await (await self._connection.execute(EXTENSION)).fetchone()
            check_version(None if row is None else row["extversion"])
        except (EasemlError, asyncio.CancelledError):
            await self.close()
            raise

    @property
    def server_version(self) -> int:
        """The server's version, as PostgreSQL numbers it: 150019 is 15.19."""
        return self._connection.info.server_version

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def write(self, name: str, **values: object) -> dict[str, Any]:
        """Run a query that changes nothing, and returns no row, if somebody's open transaction has locked the rows."""
        with contextlib.suppress(RowsHeld):
            return await self.row(name, **values)
        return {}

    async def needed(self, name: str, **values: object) -> dict[str, Any]:
        """Run a query that needs its rows. Raises NotFound if somebody's open transaction has locked them."""
        try:
            return await self.row(name, **values)
        except RowsHeld as error:
            raise NotFound(str(error)) from error

    async def row(self, name: str, **values: object) -> dict[str, Any]:
        """Return the first row of a query; empty when there is none."""
        rows = await self.rows(name, **values)
        return rows[0] if rows else {}

    async def rows(self, name: str, **values: object) -> list[dict[str, Any]]:
        """Return the rows of a query; every query may name the lease. While the server is busy, it is asked again: a
        statement that failed has changed nothing, and the sessions are worth keeping, since no other could log in.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        pauses = map(BUSY_PAUSE.seconds, itertools.count())
        while True:
            try:
                return await self._rows(name, values)
            except ServerBusy:
                pause_seconds = next(pauses)
                if time.monotonic() + pause_seconds > deadline:
                    raise
            await asyncio.sleep(pause_seconds)

    async def _rows(self, name: str, values: dict[str, object]) -> list[dict[str, Any]]:
        statement = queries("coordinator")[name].encode()
        with _errors_of_ours():
            cursor = await self._connection.execute(statement, {"lease_number": self.lease_number, **values})
            return await _fetched(cursor) if cursor.description else []


@contextlib.contextmanager
def _errors_of_ours() -> Iterator[None]:
    """Raise the driver's errors as the project's own."""
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise rows_held(error) from error
    except psycopg.errors.DiskFull as error:
        raise out_of_space(error) from error
    except psycopg.OperationalError as error:
        if is_busy(error):
            raise server_busy(error) from error
        is_of_the_row = (error.sqlstate or "").startswith("54")  # a limit of the server, such as nesting
        raise (server_error(error) if is_of_the_row else unavailable(error)) from error
    except psycopg.Error as error:
        raise server_error(error) from error
    except (ValueError, RecursionError) as error:  # a number of 5,001 digits, JSON that nests 5,000 deep
        raise InvalidData(f"a row cannot be read: {error}") from error


async def _fetched(cursor: psycopg.AsyncCursor[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all rows; between pages of very many, other tasks get their turn."""
    rows = page = await cursor.fetchmany(ROWS_AT_ONCE)
    while len(page) == ROWS_AT_ONCE:
        await asyncio.sleep(0)
        page = await cursor.fetchmany(ROWS_AT_ONCE)
        rows = rows + page
    return rows
