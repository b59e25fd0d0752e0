"""Sessions of the service: what a database sets for its users does not bound them, and their errors are ours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from easeml_db.errors import ServerUnavailable
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
