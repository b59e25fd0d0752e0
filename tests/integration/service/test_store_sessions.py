"""Sessions of the service: what a database sets for its users does not bound them, and their errors are ours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from easeml_db.errors import ServerBusy, ServerUnavailable
from easeml_db.postgres.connection import connect
from easeml_db.postgres.stores import store_session
from easeml_db.postgres.stores.store_session import StoreSession

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session


async def settings_of(dsn: str, **settings: str) -> list[Any]:
    """The statement timeout of a new session of the service."""
    async with await connect(dsn, "easeml test", **settings) as session:
        return [row["statement_timeout"] for row in await (await session.execute("SHOW statement_timeout")).fetchall()]


def test_a_statement_timeout_of_the_database_does_not_bound_the_service(database: Session) -> None:
    database.execute(f"ALTER DATABASE {database.info.dbname} SET statement_timeout = '1s'")
    assert asyncio.run(settings_of(database.dsn)) == ["0"]
    assert asyncio.run(settings_of(database.dsn, statement_timeout="30s")) == ["30s"]


def test_a_session_that_ends_while_it_is_opened_says_that_the_server_cannot_be_reached(
    database: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_session, "EXTENSION", "SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(ServerUnavailable, match="terminating connection"):
        asyncio.run(StoreSession(database.dsn).open())


def test_a_lost_slot_whose_row_is_locked_comes_back_when_it_is_free(database: Session) -> None:
    database.execute("UPDATE easeml.slots SET status = 'lost', lost_at = now()")

    async def recovered() -> list[int]:
        session = StoreSession(database.dsn)
        await session.open()
        try:
            return sorted(row["slot_id"] for row in await session.rows("recover_slots"))
        finally:
            await session.close()

    with database.again() as holder, holder.transaction():
        holder.execute("SELECT FROM easeml.slots WHERE slot_id = 1 FOR UPDATE")
        assert asyncio.run(recovered()) == [2]
    assert asyncio.run(recovered()) == [1]


# PostgreSQL's own error of a full lock table, without filling it.
FULL = """
CREATE OR REPLACE FUNCTION easeml.has_live_coordinator() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.attempts') < {} THEN
        RAISE EXCEPTION USING errcode = '53200', message = 'out of shared memory';
    END IF;
    RETURN true;
END $$
"""


async def health(dsn: str) -> dict[str, Any]:
    session = StoreSession(dsn)
    await session.open()
    try:
        return await session.row("health")
    finally:
        await session.close()


def test_a_statement_is_tried_again_while_the_lock_table_is_full(
    database: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE SEQUENCE public.attempts")
    database.execute(FULL.format(4))  # type: ignore[arg-type]
    assert asyncio.run(health(database.dsn))["is_alive"] is True
    assert database.value("SELECT last_value FROM public.attempts") >= 4

    database.execute(FULL.format(1000))  # type: ignore[arg-type]
    monkeypatch.setattr(store_session, "BUSY_SECONDS", 0.3)
    with pytest.raises(ServerBusy, match="short of locks or connections: out of shared memory"):
        asyncio.run(health(database.dsn))
