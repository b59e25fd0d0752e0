"""The lease in PostgreSQL: a row says which session holds it, and a number fences what is written under it.

The row belongs to the service. An advisory lock would not do: any role can take it, and keep every coordinator out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping

from easeml_db import __version__
from easeml_db.errors import OutOfSpace, RowsHeld, ServerBusy, ServerUnavailable
from easeml_db.postgres import background
from easeml_db.postgres.stores.changes import Changes
from easeml_db.postgres.stores.store_session import StoreSession

BEAT_SECONDS = 2.0
STANDBY_SECONDS = 1.0


class PostgresLease:
    """LeaseStore on PostgreSQL. A coordinator that finds the holder's session gone, or its last sign of life old, takes
    over. Signs of life have a session and a task of their own, so that they wait behind no other statement. A
    coordinator that has lost the lease may continue for a moment; the lease number fences its writes.
    """

    def __init__(
        self,
        session: StoreSession,
        changes: Changes,
        on_standby: Callable[[], None],
        counted: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._session, self._changes, self._on_standby, self._counted = session, changes, on_standby, counted
        self._own = StoreSession(session.dsn, "easeml coordinator (lease)")
        self._beating: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect."""
        await self._own.open()

    async def close(self) -> None:
        """Close the session, and so give the lease away."""
        if self._beating is not None:
            self._beating.cancel()
        await self._own.close()

    async def acquire(self) -> int:
        """Wait until nobody holds the lease, then draw a new number; report once that another coordinator has it.
        Raises NotAllowed in a partly restored database, where units would continue from lost states.
        """
        await self._own.row("finish_restore")
        is_told = False
        while (number := await self._draw()) is None:
            if not is_told:
                self._on_standby()
            is_told = True
            await asyncio.sleep(STANDBY_SECONDS)
        self._session.lease_number = self._own.lease_number = number
        self._beating = background.begin(self._beat())  # a broken one shows at the next heartbeat
        await self._session.write("clear_slots")
        await self._changes.watch()
        return number

    async def is_held(self) -> bool:
        """Return whether the lease is still ours."""
        return bool((await self._session.row("read_lease"))["lease_number"] == self._session.lease_number)

    async def heartbeat(self) -> None:
        """Make sure that signs of life are given. Raises ServerUnavailable when a session of ours is lost."""
        if self._changes.is_lost or (self._beating is not None and self._beating.done()):
            raise ServerUnavailable("a session of the coordinator was lost")

    async def release(self) -> None:
        """Give up the lease."""
        if self._beating is not None:
            self._beating.cancel()
        await self._own.row("sign_off")

    async def _draw(self) -> int | None:
        """Take the lease if nobody holds it, in one short transaction that compares the number and changes it."""
        holder = await self._own.row("read_holder")
        if holder["is_held"]:
            return None
        names = {"host": socket.gethostname(), "process_id": os.getpid(), "version": __version__}
        try:
            drawn = await self._own.row("draw_lease", seen=holder["lease_number"], **names)
        except RowsHeld:  # a unit of the last holder is just being recorded
            return None
        return drawn.get("lease_number")

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(OutOfSpace, RowsHeld, ServerBusy):
                await self._own.row("heartbeat", counters=json.dumps(self._counted()))
            await asyncio.sleep(BEAT_SECONDS)
