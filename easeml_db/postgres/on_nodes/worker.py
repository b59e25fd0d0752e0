"""Does what tenants have asked of nodes, in the background: packings, and jobs of other kinds.

Tenants take turns, each with one thing at a time, and some are at work side by side. What takes too long ends, and so
does what nobody wants any more. Whatever one of them raises ends that one alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from easeml_db.errors import EasemlError, NotReady, StaleLease
from easeml_db.postgres import background
from easeml_db.postgres.connection import connect, unit_error
from easeml_db.postgres.nodes.node_store import Connection
from easeml_db.postgres.nodes.node_works import PASSING, SETTINGS, Fields
from easeml_db.postgres.nodes.states_in_use import StatesInUse
from easeml_db.postgres.on_nodes.jobs import do_job
from easeml_db.postgres.on_nodes.kept_sessions import KeptSessions
from easeml_db.postgres.on_nodes.packing import pack_dataset
from easeml_db.postgres.stores.store_session import LOCK_TIMEOUT, StoreSession

LOOK_SECONDS = 0.1
WITHOUT_NODES_SECONDS = 1.0  # until there is a node, nothing can be asked of one
HAS_NODES = "EXISTS (SELECT FROM easeml.segments WHERE service IS NOT NULL) AS has_nodes"
AFTER_ERROR_SECONDS = 1.0
CANCEL_AGAIN_SECONDS = (
    10.0  # twice as long each time: a further cancel cuts short what the one before has it clear away
)
MOST_AT_ONCE = 4


@dataclass(frozen=True)
class Asked:
    """One kind of request: how it is found, opened and noted down, which are wanted, and who does one."""

    next_one: str
    opened: str
    wanted: str
    note: str
    do: Callable[[str, Fields, int], Awaitable[None]]


def packings(sessions: KeptSessions) -> Asked:
    """Return the kind of request that makes a dataset. `sessions`: those of earlier ones."""

    async def do(dsn: str, told: Fields, lease_number: int) -> None:
        await pack_dataset(dsn, told, lease_number, sessions)

    return Asked(
        f"SELECT easeml.next_packing(%s::name[]) AS told, {HAS_NODES}",
        "SELECT easeml.open_packing(%s) AS told",
        "SELECT easeml.wanted_packings() AS numbers",
        "SELECT easeml.note_packing(%s, %s::jsonb, %s, %s)",
        do,
    )


def node_jobs(in_use: StatesInUse) -> Asked:
    """Return the kind of request that is no packing. `in_use`: states that no sweep of a node removes."""

    async def do(dsn: str, told: Fields, lease_number: int) -> None:
        await do_job(dsn, told, lease_number, in_use)

    return Asked(
        f"SELECT easeml.next_node_job(%s::name[]) AS told, {HAS_NODES}",
        "SELECT easeml.open_node_job(%s) AS told",
        "SELECT easeml.wanted_node_jobs() AS numbers",
        "SELECT easeml.note_node_job(%s, %s::jsonb, %s, %s)",
        do,
    )


@dataclass
class _Work:
    """What is under way. `cancel_from`: from when on it may be cancelled, and `pause_seconds` later again."""

    tenant: str
    task: asyncio.Task[None]
    cancel_from: float = 0.0
    pause_seconds: float = CANCEL_AGAIN_SECONDS

    def cancel(self, now_seconds: float) -> None:
        """Cancel it, unless it was a moment ago: nodes may not answer, so it is never given up."""
        if now_seconds >= self.cancel_from:
            self.task.cancel()
            self.cancel_from, self.pause_seconds = now_seconds + self.pause_seconds, 2 * self.pause_seconds


class Requests:
    """The session in which requests of all kinds are found, opened and noted down: their workers share it."""

    def __init__(self, leading: StoreSession) -> None:
        self.leading = leading
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    async def row(self, statement: str, *values: object) -> dict[str, Any]:
        """Return the only row of a statement. Raises EasemlError or psycopg.Error; the next one connects again."""
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                settings = SETTINGS | {"lock_timeout": LOCK_TIMEOUT}
                self._connection = await connect(self.leading.dsn, "easeml coordinator (nodes)", **settings)
        row = await (await self._connection.execute(statement.encode(), list(values))).fetchone()
        return row or {}

    async def close(self) -> None:
        """Close the session."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


class NodeWorker:
    """Looks for what is to be done for as long as this process holds the lease, which the leading session knows."""

    def __init__(self, requests: Requests, asked: Asked) -> None:
        self._requests, self._asked = requests, asked
        self._leading = requests.leading
        self._keeping: asyncio.Task[None] | None = None
        self._at_work: dict[int, _Work] = {}
        self._has_nodes = True

    @property
    def pause_seconds(self) -> float:
        """Seconds until the next look: longer for as long as there are no nodes."""
        return LOOK_SECONDS if self._has_nodes else WITHOUT_NODES_SECONDS

    def begin(self) -> None:
        """Start looking."""
        self._keeping = background.begin(self._keep())

    async def close(self) -> None:
        """Do no more."""
        tasks = [work.task for work in self._at_work.values()]
        tasks += [self._keeping] if self._keeping is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self.pause_seconds)
            if self._leading.lease_number:
                try:
                    await self.take_turn()
                except (EasemlError, psycopg.Error):  # no server, no connection left: the next turn begins anew
                    await asyncio.sleep(AFTER_ERROR_SECONDS)

    async def take_turn(self) -> int:
        """End what nobody wants any more, and begin what is next; return how much is under way."""
        self._at_work = {number: work for number, work in self._at_work.items() if not work.task.done()}
        if self._at_work:
            wanted = set((await self._requests.row(self._asked.wanted))["numbers"])
            for number, work in self._at_work.items():
                if number not in wanted:
                    work.cancel(asyncio.get_running_loop().time())
        while len(self._at_work) < MOST_AT_ONCE:
            busy = [work.tenant for work in self._at_work.values()]
            found = await self._requests.row(self._asked.next_one, busy)
            told: Fields | None = found["told"]
            self._has_nodes = found["has_nodes"]
            if told is None:
                break
            self._at_work[told["number"]] = _Work(told["tenant"], background.begin(self._do(told["number"])))
        return len(self._at_work)

    async def _do(self, number: int) -> None:
        """Do one thing, and write down what is in the way."""
        lease_number, seconds = self._leading.lease_number, None
        try:
            told = (await self._requests.row(self._asked.opened, number))["told"]
            if told is not None:
                seconds = told["seconds"]
                async with asyncio.timeout(seconds):
                    await self._asked.do(self._leading.dsn, told, lease_number)
        except StaleLease:
            return
        except TimeoutError:
            hint = "An administrator may allow more: SELECT easeml.set_node_job_limit(seconds)."
            found: EasemlError = NotReady(f"it took longer than {seconds:g} seconds", hint=hint)
        except EasemlError as error:
            found = error
        except psycopg.Error as error:
            found = unit_error(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, that of other tenants is to be done
            found = EasemlError(f"it could not be done: {type(error).__name__}: {error}")
        else:
            return
        await self._note(number, found, lease_number)

    async def _note(self, number: int, found: EasemlError, lease_number: int) -> None:
        """Record what is in the way; the words of a driver about a connection stay out of the tables."""
        detail = None if isinstance(found, PASSING) else found.detail
        told = {"sqlstate": found.sqlstate, "message": str(found), "detail": detail, "hint": found.hint}
        printable = {name: text and text.replace("\0", "") for name, text in told.items()}
        is_final = not isinstance(found, PASSING)
        await self._requests.row(self._asked.note, number, Jsonb(printable), is_final, lease_number)
