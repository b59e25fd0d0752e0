"""Works on the requests of tenants to nodes in the background: packings, and jobs of other kinds.

Tenants take turns, with one request at a time; requests of several tenants run side by side. A request ends when it
takes too long or when nobody wants it any more. An error ends only the request that raised it.
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
# Doubles each time: a further cancel interrupts the clean-up that the one before has started.
CANCEL_AGAIN_SECONDS = 10.0
MOST_AT_ONCE = 4


@dataclass(frozen=True)
class Asked:
    """A kind of request: the statements that pick, open, list and fail one, and the function that does it."""

    next_one: str
    opened: str
    wanted: str
    note: str
    do: Callable[[str, Fields, int], Awaitable[None]]


def packings(sessions: KeptSessions) -> Asked:
    """Return the kind of request that makes a dataset. `sessions`: kept from earlier packings."""

    async def do(dsn: str, request: Fields, lease_number: int) -> None:
        await pack_dataset(dsn, request, lease_number, sessions)

    return Asked(
        f"SELECT easeml.next_packing(%s::name[]) AS told, {HAS_NODES}",
        "SELECT easeml.open_packing(%s) AS told",
        "SELECT easeml.wanted_packings() AS numbers",
        "SELECT easeml.note_packing(%s, %s::jsonb, %s, %s)",
        do,
    )


def node_jobs(in_use: StatesInUse) -> Asked:
    """Return the kind of request that is no packing. `in_use`: states that no sweep of a node removes."""

    async def do(dsn: str, job: Fields, lease_number: int) -> None:
        await do_job(dsn, job, lease_number, in_use)

    return Asked(
        f"SELECT easeml.next_node_job(%s::name[]) AS told, {HAS_NODES}",
        "SELECT easeml.open_node_job(%s) AS told",
        "SELECT easeml.wanted_node_jobs() AS numbers",
        "SELECT easeml.note_node_job(%s, %s::jsonb, %s, %s)",
        do,
    )


@dataclass
class _Work:
    """A request under way. `cancel_from`: when it may be cancelled, and `pause_seconds` later again."""

    tenant: str
    task: asyncio.Task[None]
    cancel_from: float = 0.0
    pause_seconds: float = CANCEL_AGAIN_SECONDS

    def cancel(self, now_seconds: float) -> None:
        """Cancel it, unless it was cancelled a moment ago: a node may not answer, so cancelling is repeated."""
        if now_seconds >= self.cancel_from:
            self.task.cancel()
            self.cancel_from, self.pause_seconds = now_seconds + self.pause_seconds, 2 * self.pause_seconds


class Requests:
    """The session in which the workers of all kinds pick, open and fail requests."""

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
        return await (await self._connection.execute(statement.encode(), list(values))).fetchone() or {}

    async def close(self) -> None:
        """Close the session."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


class NodeWorker:
    """Picks requests as long as this process holds the lease, which the leading session knows."""

    def __init__(self, requests: Requests, kind: Asked) -> None:
        self._requests, self._kind = requests, kind
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
        tasks = [work.task for work in self._at_work.values()] + ([self._keeping] if self._keeping else [])
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
        """Cancel requests that nobody wants any more, and begin the next; return how many are under way."""
        self._at_work = {number: work for number, work in self._at_work.items() if not work.task.done()}
        if self._at_work:
            still_wanted = set((await self._requests.row(self._kind.wanted))["numbers"])
            for number, work in self._at_work.items():
                if number not in still_wanted:
                    work.cancel(asyncio.get_running_loop().time())
        while len(self._at_work) < MOST_AT_ONCE:
            busy = [work.tenant for work in self._at_work.values()]
            row = await self._requests.row(self._kind.next_one, busy)
            request: Fields | None = row["told"]
            self._has_nodes = row["has_nodes"]
            if request is None:
                break
            self._at_work[request["number"]] = _Work(request["tenant"], background.begin(self._do(request["number"])))
        return len(self._at_work)

    async def _do(self, number: int) -> None:
        """Do one request, and record what is in the way."""
        lease_number, seconds = self._leading.lease_number, None
        try:
            request = (await self._requests.row(self._kind.opened, number))["told"]
            if request is not None:
                seconds = request["seconds"]
                async with asyncio.timeout(seconds):
                    await self._kind.do(self._leading.dsn, request, lease_number)
        except StaleLease:
            return
        except TimeoutError:
            hint = "An administrator may allow more: SELECT easeml.set_node_job_limit(seconds)."
            problem: EasemlError = NotReady(f"it took longer than {seconds:g} seconds", hint=hint)
        except EasemlError as error:
            problem = error
        except psycopg.Error as error:
            problem = unit_error(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, that of other tenants is to be done
            problem = EasemlError(f"it could not be done: {type(error).__name__}: {error}")
        else:
            return
        await self._note(number, problem, lease_number)

    async def _note(self, number: int, problem: EasemlError, lease_number: int) -> None:
        """Record what is in the way; the words of a driver about a connection stay out of the tables."""
        is_final = not isinstance(problem, PASSING)
        detail = problem.detail if is_final else None
        texts = {"sqlstate": problem.sqlstate, "message": str(problem), "detail": detail, "hint": problem.hint}
        printable = {name: text and text.replace("\0", "") for name, text in texts.items()}
        await self._requests.row(self._kind.note, number, Jsonb(printable), is_final, lease_number)
