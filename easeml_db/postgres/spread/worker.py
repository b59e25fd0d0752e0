"""Packs the datasets of rows on nodes that tenants have asked for, one at a time, in the background."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from easeml_db.errors import EasemlError, NotFound, StaleLease
from easeml_db.postgres import background
from easeml_db.postgres.connection import connect, unit_error
from easeml_db.postgres.spread.node_sessions import PASSING, SETTINGS, Told
from easeml_db.postgres.spread.packing import pack_dataset
from easeml_db.postgres.store_session import StoreSession

LOOK_SECONDS = 0.5
NEXT = "SELECT easeml.next_packing() AS told"
NOTE = "SELECT easeml.note_packing(%s, %s::jsonb, %s, %s)"


class PackingWorker:
    """Looks for what is to be packed for as long as this process holds the lease, which the leading session knows."""

    def __init__(self, leading: StoreSession) -> None:
        self._leading = leading
        self._connection: psycopg.AsyncConnection[dict[str, Any]] | None = None
        self._keeping: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start looking."""
        self._keeping = background.begin(self._keep())

    async def close(self) -> None:
        """Pack no more."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if self._connection is not None:
            await self._connection.close()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._leading.lease_number:
                try:
                    await self.take_turn()
                except (EasemlError, psycopg.Error):  # no server, rows that somebody holds: the next turn begins anew
                    continue

    async def take_turn(self) -> bool:
        """Pack what is next; say whether there was something."""
        if self._connection is None or self._connection.closed:
            self._connection = await connect(self._leading.dsn, "easeml coordinator (packings)", **SETTINGS)
        row = await (await self._connection.execute(NEXT)).fetchone()
        told: Told | None = None if row is None else row["told"]
        if told is None:
            return False
        lease_number, dataset_id = self._leading.lease_number, told["dataset_id"]
        try:
            await pack_dataset(self._leading.dsn, told, lease_number)
        except (EasemlError, psycopg.Error) as error:
            found = unit_error(error) if isinstance(error, psycopg.Error) else error
            if not isinstance(found, StaleLease | NotFound) or found.message.startswith("segment"):
                await self._note(dataset_id, found, lease_number)
        return True

    async def _note(self, dataset_id: int, found: EasemlError, lease_number: int) -> None:
        """Record what is in the way; the words of a driver about a connection stay out of the tables."""
        detail = None if isinstance(found, PASSING) else found.detail
        told = {"sqlstate": found.sqlstate, "message": str(found), "detail": detail, "hint": found.hint}
        values = [dataset_id, Jsonb(told), not isinstance(found, PASSING), lease_number]
        if self._connection is not None:
            await self._connection.execute(NOTE, values)
