"""Does what tenants have asked of nodes, one thing at a time, in the background: packings, and jobs of other kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from easeml_db.errors import EasemlError, NotFound, StaleLease
from easeml_db.postgres import background
from easeml_db.postgres.connection import connect, unit_error
from easeml_db.postgres.spread.jobs import do_job
from easeml_db.postgres.spread.node_sessions import PASSING, SETTINGS, Told
from easeml_db.postgres.spread.packing import pack_dataset
from easeml_db.postgres.store_session import StoreSession

LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Asked:
    """One kind of request: how the next one is found and noted down, what tells it apart, and who does it."""

    what: str
    next_one: str
    note: str
    number: str
    do: Callable[[str, Told, int], Awaitable[None]]


PACKINGS = Asked(
    "packings",
    "SELECT easeml.next_packing() AS told",
    "SELECT easeml.note_packing(%s, %s::jsonb, %s, %s)",
    "dataset_id",
    pack_dataset,
)
JOBS = Asked(
    "jobs on nodes",
    "SELECT easeml.next_node_job() AS told",
    "SELECT easeml.note_node_job(%s, %s::jsonb, %s, %s)",
    "job_id",
    do_job,
)


class NodeWorker:
    """Looks for what is to be done for as long as this process holds the lease, which the leading session knows."""

    def __init__(self, leading: StoreSession, asked: Asked) -> None:
        self._leading, self._asked = leading, asked
        self._connection: psycopg.AsyncConnection[dict[str, Any]] | None = None
        self._keeping: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start looking."""
        self._keeping = background.begin(self._keep())

    async def close(self) -> None:
        """Do no more."""
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
        """Do what is next; say whether there was something."""
        if self._connection is None or self._connection.closed:
            self._connection = await connect(self._leading.dsn, f"easeml coordinator ({self._asked.what})", **SETTINGS)
        row = await (await self._connection.execute(self._asked.next_one.encode())).fetchone()
        told: Told | None = None if row is None else row["told"]
        if told is None:
            return False
        lease_number, number = self._leading.lease_number, told[self._asked.number]
        try:
            await self._asked.do(self._leading.dsn, told, lease_number)
        except (EasemlError, psycopg.Error) as error:
            found = unit_error(error) if isinstance(error, psycopg.Error) else error
            if not isinstance(found, StaleLease | NotFound) or found.message.startswith("segment"):
                await self._note(number, found, lease_number)
        return True

    async def _note(self, number: int, found: EasemlError, lease_number: int) -> None:
        """Record what is in the way; the words of a driver about a connection stay out of the tables."""
        detail = None if isinstance(found, PASSING) else found.detail
        told = {"sqlstate": found.sqlstate, "message": str(found), "detail": detail, "hint": found.hint}
        values = [number, Jsonb(told), not isinstance(found, PASSING), lease_number]
        if self._connection is not None:
            await self._connection.execute(self._asked.note.encode(), values)
