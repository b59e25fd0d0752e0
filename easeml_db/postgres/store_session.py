"""A session of the coordinator that runs named queries; the stores share one, and with it the lease number."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, LiteralString

import psycopg

from easeml_db import __version__
from easeml_db.errors import VersionMismatch
from easeml_db.postgres.connection import connect, out_of_space, server_error, unavailable
from easeml_db.postgres.queries import queries

LOCK_TIMEOUT = (
    "250ms"  # what cannot be had at once is asked for again later: nobody's transaction keeps a session waiting
)
EXTENSION = "SELECT extversion FROM pg_extension WHERE extname = 'easeml'"


class StoreSession:
    """Runs the named queries of the coordinator, a transaction each, and raises the project's own errors."""

    def __init__(self, dsn: str, application_name: str = "easeml coordinator", **settings: str) -> None:
        self.dsn, self._application_name, self._settings = dsn, application_name, settings
        self.lease_number = 0  # until the lease is acquired

    async def open(self) -> None:
        """Connect. Raises VersionMismatch where the extension is missing or of another version."""
        self._connection = await connect(self.dsn, self._application_name, idle_session_timeout="0", **self._settings)
        row = await (await self._connection.execute(EXTENSION)).fetchone()
        if row is None or row["extversion"] != __version__:
            found = "no extension easeml" if row is None else f"extension easeml {row['extversion']}"
            raise VersionMismatch(
                f"the database has {found}, this coordinator is {__version__}",
                hint="Run: easeml install --dsn ...",
            )

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    def transaction(self) -> AbstractAsyncContextManager[psycopg.AsyncTransaction]:
        """Make one transaction of several queries."""
        return self._connection.transaction()

    async def set_locally(self, statement: LiteralString) -> None:
        """Run a SET LOCAL within a transaction."""
        await self._connection.execute(statement)

    async def row(self, name: str, **values: object) -> dict[str, Any]:
        """Return the first row of a query; empty when there is none."""
        rows = await self.rows(name, **values)
        return rows[0] if rows else {}

    async def rows(self, name: str, **values: object) -> list[dict[str, Any]]:
        """Return the rows of a query; every query may name the lease."""
        statement = queries("coordinator")[name].encode()
        try:
            cursor = await self._connection.execute(statement, {"lease_number": self.lease_number, **values})
            return await cursor.fetchall() if cursor.description else []
        except psycopg.errors.LockNotAvailable:
            raise
        except psycopg.errors.DiskFull as error:
            raise out_of_space(error) from error
        except psycopg.OperationalError as error:
            raise unavailable(error) from error
        except psycopg.Error as error:
            if (error.sqlstate or "").startswith("ML"):
                raise server_error(error) from error
            raise
