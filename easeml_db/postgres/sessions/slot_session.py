"""The warm session of one slot: units are called on it, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, TypeVar

import psycopg

from easeml_db.errors import ServerCrashed, SlotLost
from easeml_db.postgres.connection import connect, unit_error
from easeml_db.postgres.sessions.server_life import life_of, may_have_crashed
from easeml_db.postgres.sessions.unit_session import Result

SETTINGS = {
    "client_connection_check_interval": "1s",  # a killed coordinator's units end within a second
    "statement_timeout": "0",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # A tenant's open transaction costs a slot no more; its unit runs again later. Less than the second after which the
    # server looks for circles: where two wait for each other it is the service that gives way, and not a tenant.
    "lock_timeout": "500ms",
    "jit": "off",
}
SHOW_IDLE = """
UPDATE easeml.slots s SET unit_started_at = NULL WHERE s.slot_id = %s AND s.unit_started_at IS NOT NULL
    AND (s.backend_pid = pg_backend_pid() OR NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = s.backend_pid))
"""
SHOW_START = """
UPDATE easeml.slots SET start_seconds = start_seconds || jsonb_build_object('session', %s::float8) WHERE slot_id = %s
"""

CRASHED = (
    "the server restarted while this unit ran, and everybody's sessions ended; probably out of memory. It is not tried"
    " again unless you resume the run"
)


class SlotSession:
    """A connection to this server on which a slot's units run, and through which they are asked to stop."""

    def __init__(
        self, slot_id: int, connection: psycopg.AsyncConnection[dict[str, Any]], dsn: str = "", life: str = ""
    ) -> None:
        self.slot_id = slot_id
        self._connection, self._dsn, self._life = connection, dsn, life
        self._pid = connection.info.backend_pid
        self._is_ending = False
        connection.add_notice_handler(self._note_ending)

    def _note_ending(self, notice: psycopg.errors.Diagnostic) -> None:
        """Note that the server ends this session on purpose: for a shutdown, or since another process crashed."""
        self._is_ending = self._is_ending or (notice.sqlstate or "").startswith("57P")

    @property
    def is_closed(self) -> bool:
        """Return whether the connection is lost or closed."""
        return self._connection.closed

    @property
    def pid(self) -> int:
        """Return the number of the server's process."""
        return self._pid

    async def call(self, procedure: str, text: str) -> Result:
        """Call a procedure with an order and return its result. Raises the class of its error."""
        try:
            cursor = await self._connection.execute(f"CALL easeml.{procedure}(%s::jsonb, NULL)".encode(), [text])
            row = await cursor.fetchone()
        except psycopg.Error as error:
            if error.sqlstate is None and self.is_closed and not self._is_ending:
                raise await self._silent() from error
            raise unit_error(error) from error
        result: Result = (row or {}).get("result") or {}
        return result

    async def _silent(self) -> ServerCrashed | SlotLost:
        """Return the error of a connection that ended without a word: its process may have crashed the server."""
        if await may_have_crashed(self._dsn, self._life, self.pid):
            return ServerCrashed(CRASHED, detail=self._life)
        return SlotLost("the connection broke, and the server went on")

    async def cancel(self) -> None:
        """Ask the unit to stop."""
        if not self.is_closed:
            with contextlib.suppress(psycopg.Error):  # no server, nothing to cancel
                await self._connection.cancel_safe()

    async def show_idle(self) -> None:
        """Clear a unit that failed from the slot's row; one that is recorded does so itself."""
        with contextlib.suppress(psycopg.Error):  # a lost session's row is cleared by the next one
            await self._connection.execute(SHOW_IDLE, [self.slot_id])

    async def show_start(self, seconds: float) -> None:
        """Record how long it took to open this session: plans count it for each slot that starts."""
        with contextlib.suppress(psycopg.Error):  # the row is locked: plans know the time from other slots
            await self._connection.execute(SHOW_START, [seconds, self.slot_id])

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


S = TypeVar("S", bound=SlotSession)


async def open_session(dsn: str, slot_id: int, kind: type[S]) -> S:
    """Open and warm the session of a slot. Raises EasemlError or psycopg.Error."""
    began = time.monotonic()
    connection = await connect(dsn, f"easeml slot {slot_id}", **SETTINGS)
    try:
        session = kind(slot_id, connection, dsn, (await life_of(connection))[0])
        # Importing torch takes seconds: better now than within the first unit.
        await connection.execute("SELECT easeml.warm_up()")
        await session.show_start(time.monotonic() - began)
        await session.show_idle()
    except (psycopg.Error, asyncio.CancelledError):
        await connection.close()
        raise
    return session
