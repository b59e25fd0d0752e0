"""Whether the server crashed, or only a connection broke: one life of a server is told from the next.

Where one of its processes crashes, PostgreSQL ends all others and restarts by itself: the postmaster stays, and all
statistics are dropped at one moment. Where it is started anew, or another takes its place, the postmaster is another.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from easeml_db.errors import ServerUnavailable
from easeml_db.postgres.connection import connect
from easeml_db.postgres.queries import queries

LOOK_SECONDS = 0.1
# A server sees within a second that a connection broke, and ends its process. One that was killed stays in its list.
LOOKS = 50
ANSWER_SECONDS = 2.0


def has_crashed(before: str, now: str) -> bool:
    """Return whether the server restarted by itself between two of its lives, as `server_life` gives them."""
    (started, counted), (started_now, counted_now) = before.split(" / "), now.split(" / ")
    return started == started_now and float(counted_now) > float(counted)


async def life_of(connection: psycopg.AsyncConnection[dict[str, Any]], pid: int = 0) -> tuple[str, bool]:
    """Return the server's life, and whether a process is in its list."""
    row = await (await connection.execute(queries("coordinator")["server_life"].encode(), {"pid": pid})).fetchone()
    assert row is not None
    return row["life"], row["is_there"]


async def may_have_crashed(dsn: str, life: str, pid: int) -> bool:
    """Return whether the process that was silent may have crashed the server: not while that lives on without it."""
    for _ in range(LOOKS):
        try:
            now, is_there = await asyncio.wait_for(_look(dsn, pid), ANSWER_SECONDS)
        except (psycopg.Error, ServerUnavailable, TimeoutError):
            return True  # what it was shows when the server is back
        if now != life or not is_there:
            return has_crashed(life, now)
        await asyncio.sleep(LOOK_SECONDS)
    return False


async def _look(dsn: str, pid: int) -> tuple[str, bool]:
    connection = await connect(dsn, "easeml coordinator (look)")
    try:
        return await life_of(connection, pid)
    finally:
        await connection.close()
