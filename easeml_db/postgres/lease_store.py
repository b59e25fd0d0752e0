"""The lease in PostgreSQL: an advisory lock for who is active, a number for what is written."""

from __future__ import annotations

import os
import socket

from easeml_db import __version__
from easeml_db.errors import ServerUnavailable
from easeml_db.postgres.listener import Listener
from easeml_db.postgres.store_session import StoreSession


class PostgresLease:
    """LeaseStore on PostgreSQL. A coordinator whose lock is lost may go on for a moment: the number fences it."""

    def __init__(self, session: StoreSession, listener: Listener) -> None:
        self._session, self._listener = session, listener

    async def acquire(self) -> int:
        """Wait for the advisory lock, then draw a new lease number."""
        await self._listener.lock()
        self._session.lease_number = int((await self._session.row("draw_lease"))["lease_number"])
        names = {"host": socket.gethostname(), "process_id": os.getpid(), "version": __version__}
        await self._session.row("register", **names)
        await self._session.row("clear_slots")
        await self._listener.listen()
        return self._session.lease_number

    async def is_held(self) -> bool:
        """Say whether the lease is still ours."""
        return bool((await self._session.row("read_lease"))["lease_number"] == self._session.lease_number)

    async def heartbeat(self) -> None:
        """Give a sign of life. Raises ServerUnavailable when the listener, and with it the lock, is lost."""
        if self._listener.is_lost:
            raise ServerUnavailable("the coordinator's listening connection was lost")
        await self._session.row("heartbeat")

    async def release(self) -> None:
        """Sign off."""
        await self._session.row("sign_off")
