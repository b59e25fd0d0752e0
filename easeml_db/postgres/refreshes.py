"""Has datasets looked at that are refreshed, each by a process of its own that logs in as the tenant.

A source may be a view, which calls functions of whoever made it. So it is read with the rights of its tenant and no
others, and what it sends does not come into this process. A look is bounded: one for each tenant at a time, some in
all, a time after which the process is killed, and a rest after one that failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db.errors import EasemlError
from easeml_db.postgres import background
from easeml_db.postgres.store_session import StoreSession

LOOK_SECONDS = 5.0
MOST_AT_ONCE = 2
MOST_SECONDS = 1800.0
MOST_OUTPUT = 2000
REST_SECONDS = 300.0
"""How long a tenant rests after a step that failed for a reason that cannot be written down."""


class Refreshes:
    """Looks for as long as this process holds the lease, which the leading session knows."""

    def __init__(self, leading: StoreSession, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._leading, self._look_seconds = leading, look_seconds
        self._own: StoreSession | None = None  # opened when the lease is ours
        self._keeping: asyncio.Task[None] | None = None
        self._at_work: dict[str, asyncio.Task[None]] = {}  # by role
        self._last: dict[str, float] = {}  # when a step was last taken, by role
        self._rests: dict[str, float] = {}  # until when, by role

    def begin(self) -> None:
        """Start looking for datasets that are due."""
        self._keeping = background.begin(self._keep())

    async def close(self) -> None:
        """Look no more, and end the processes."""
        tasks = [*self._at_work.values(), *([self._keeping] if self._keeping is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._leave()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            if self._leading.lease_number:
                try:
                    await self._look()
                except EasemlError:  # no server, rows that somebody holds: the next look begins anew
                    await self._leave()

    async def _look(self) -> None:
        self._at_work = {role: task for role, task in self._at_work.items() if not task.done()}
        session = await self._session()
        for row in self._in_turns(await session.rows("due_refreshes")):
            if row["role"] not in self._at_work and len(self._at_work) < MOST_AT_ONCE:
                self._last[row["role"]] = time.monotonic()
                self._at_work[row["role"]] = background.begin(self._advance(row))

    def _in_turns(self, due: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what is due, whoever was served longest ago first: nobody waits for all datasets of another."""
        now = time.monotonic()
        awake = (row for row in due if self._rests.get(row["role"], now) <= now)
        return sorted(awake, key=lambda row: self._last.get(row["role"], 0.0))

    async def _advance(self, row: dict[str, Any]) -> None:
        """Take the next step of a dataset, and write down what kept it from being taken."""
        problem = await advance_as(self._leading.dsn, row["role"], row["dataset_name"])
        if problem is None:
            return
        with contextlib.suppress(EasemlError):
            if await (await self._session()).write("refresh_problem", problem=problem, **row):
                return
        # Whoever holds the row of the rule would have a process started every few seconds.
        self._rests[row["role"]] = time.monotonic() + REST_SECONDS

    async def _session(self) -> StoreSession:
        if self._own is None:
            own = StoreSession(self._leading.dsn, "easeml coordinator (refreshes)")
            await own.open()
            self._own = own
        self._own.lease_number = self._leading.lease_number
        return self._own

    async def _leave(self) -> None:
        if self._own is not None:
            await self._own.close()
            self._own = None


async def advance_as(dsn: str, role: str, dataset: str, *, most_seconds: float = MOST_SECONDS) -> str | None:
    """Take the next step of a refreshed dataset as its tenant, in a process; return what went wrong."""
    # The password, if any, is that of the service; libpq finds that of the tenant in its file.
    parameters = {name: value for name, value in conninfo_to_dict(dsn).items() if name != "password"}
    options = f"{parameters.get('options', '')} -c statement_timeout={most_seconds:.0f}s"
    environment = {**os.environ, "EASEML_DSN": make_conninfo("", **{**parameters, "user": role, "options": options})}
    command = [sys.executable, "-m", "easeml_db", "refresh", "--advance", "--", dataset]
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE, cwd="/",  # Python imports from where it starts, which anybody may write in
    )  # fmt: skip
    try:
        said = await asyncio.wait_for(_said(process), most_seconds)
    except asyncio.TimeoutError:
        return f"it took longer than {most_seconds:g} seconds"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return None if process.returncode == 0 else said


async def _said(process: asyncio.subprocess.Process) -> str:
    """Return the beginning of what a process says until it ends; the rest is read and forgotten."""
    said = b""
    while process.stderr is not None and (part := await process.stderr.read(MOST_OUTPUT)):
        said += part[: MOST_OUTPUT - len(said)]
    await process.wait()
    return " ".join(said.decode(errors="replace").replace("\0", "").split())
