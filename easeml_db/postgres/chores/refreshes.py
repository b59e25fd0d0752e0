"""Checks of refreshed datasets, each by a process of its own that logs in as the tenant.

A source may be a view that calls functions of the role that made it. So it is read with the rights of its tenant only,
and its data does not enter this process. Checks are bounded: one at a time for each tenant, a few in all, a time limit
after which the process is killed (shorter while others wait), and a rest after a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db.errors import EasemlError
from easeml_db.postgres import background
from easeml_db.postgres.chores.repeated_chores import RepeatedChore
from easeml_db.postgres.chores.work_slots import SHORT_SECONDS, Change, Places, change_of
from easeml_db.postgres.stores.store_session import StoreSession

LOOK_SECONDS = 5.0
MOST_SECONDS = 1800.0
MOST_OUTPUT = 2000
REST_SECONDS = 300.0
"""Rest of a dataset after a failed step, or of its tenant if the reason could not be recorded."""
NOTE_ATTEMPTS = 5  # a second apart: so long the server may take to see that the process of a step is gone
FOR_OTHERS = "it took longer than {:g} seconds while others waited, and begins anew when it can have longer"


@dataclass
class Step:
    """A step under way: its start, the event that ends it for others, and its task here."""

    began: float = field(default_factory=time.monotonic)
    ended_for_others: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None


class Refreshes(RepeatedChore):
    """Looks for datasets that are due, every few seconds."""

    def __init__(self, leading: StoreSession, *, short_seconds: float = SHORT_SECONDS) -> None:
        super().__init__(leading, "refreshes")
        self._short_seconds = short_seconds
        self._at_work: dict[str, Step] = {}  # by role
        self._places = Places()
        self._last: dict[str, float] = {}  # when a step was last taken, by role
        self._rests: dict[str, float] = {}  # until when, by role

    async def close(self) -> None:
        """Stop checking, and end the processes."""
        works = [work for work in self._works() if work is not None]
        for work in works:
            work.cancel()
        await super().close()
        await asyncio.gather(*works, return_exceptions=True)

    async def take_turn(self) -> float:
        """Begin the steps that are due; return for how many seconds to rest."""
        try:
            await self._look()
        except EasemlError:  # no server, locked rows: the next check begins anew
            await self._leave()
        return LOOK_SECONDS

    async def _look(self) -> None:
        session = await self._session()
        due = {row["role"]: row for row in self._in_turns(await session.rows("due_refreshes"))}
        for role in (change := self._change(list(due))).ends:
            self._at_work[role].ended_for_others.set()
        if change.ends:
            await asyncio.wait([work for work in self._works(change.ends) if work is not None])
            change = self._change(list(due))
        for role in change.begins:
            step = self._at_work[role] = Step()
            self._last[role] = step.began
            step.work = background.begin(self._advance(due[role], step))

    def _works(self, roles: Sequence[str] | None = None) -> list[asyncio.Task[None] | None]:
        return [step.work for role, step in self._at_work.items() if roles is None or role in roles]

    def _change(self, due: Sequence[str]) -> Change:
        """Return the tenants whose steps end and begin, and remember which one has the long place."""
        self._at_work = {role: step for role, step in self._at_work.items() if step.work and not step.work.done()}
        began = {role: step.began for role, step in self._at_work.items()}
        waiting = [role for role in due if role not in began]
        change = change_of(self._places, began, waiting, time.monotonic(), short_seconds=self._short_seconds)
        self._places = change.places
        return change

    def _in_turns(self, due: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the due datasets, those of the tenant served longest ago first, so that no tenant waits for all
        datasets of another.
        """
        now = time.monotonic()
        awake = (row for row in due if self._rests.get(row["role"], now) <= now)
        return sorted(awake, key=lambda row: self._last.get(row["role"], 0.0))

    async def _advance(self, row: dict[str, Any], step: Step) -> None:
        """Take the next step of a dataset, or record the problem that prevented it."""
        problem = await advance_as(self._leading.dsn, row["role"], row["dataset_name"], end=step.ended_for_others)
        if problem is None:
            return
        if step.ended_for_others.is_set():  # its turn comes again by the order of places
            for _ in range(NOTE_ATTEMPTS):
                if await self._note(row, FOR_OTHERS.format(self._short_seconds), rest_seconds=0):
                    return
                await asyncio.sleep(1)
        elif not await self._note(row, problem, rest_seconds=REST_SECONDS):
            # Otherwise a tenant that locks the row of its rule would cause a process every few seconds.
            self._rests[row["role"]] = time.monotonic() + REST_SECONDS

    async def _note(self, row: dict[str, Any], problem: str, *, rest_seconds: float) -> bool:
        """Record why a step was not taken and when it is tried again; return whether the row could be written."""
        with contextlib.suppress(EasemlError):
            values = {"problem": problem, "rest_seconds": rest_seconds, **row}
            return bool(await (await self._session()).write("refresh_problem", **values))
        return False


async def advance_as(
    dsn: str, role: str, dataset: str, *, most_seconds: float = MOST_SECONDS, end: asyncio.Event | None = None
) -> str | None:
    """Take the next step of a refreshed dataset as its tenant, in a process; return the problem, if any. The process is
    killed after `most_seconds`, and when `end` is set; the server then ends its statement.
    """
    # The password, if any, is that of the service; libpq finds that of the tenant in its file.
    parameters = {name: value for name, value in conninfo_to_dict(dsn).items() if name != "password"}
    bounds = f"-c statement_timeout={most_seconds:.0f}s -c client_connection_check_interval=1s"
    options = f"{parameters.get('options', '')} {bounds}"
    environment = {name: value for name, value in os.environ.items() if name != "PGPASSWORD"}
    environment["EASEML_DSN"] = make_conninfo("", **{**parameters, "user": role, "options": options})
    command = [sys.executable, "-m", "easeml_db", "dataset", "refresh", "--advance", "--", dataset]
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE, cwd="/",  # Python imports from where it starts, which anybody may write in
    )  # fmt: skip
    saying = asyncio.create_task(_said(process))
    ending = asyncio.create_task((end or asyncio.Event()).wait())
    try:
        await asyncio.wait({saying, ending}, timeout=most_seconds, return_when=asyncio.FIRST_COMPLETED)
        if not saying.done():
            return "others waited" if ending.done() else f"it took longer than {most_seconds:g} seconds"
        return None if process.returncode == 0 else saying.result()
    finally:
        saying.cancel()
        ending.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _said(process: asyncio.subprocess.Process) -> str:
    """Return the beginning of a process's output once it has ended; the rest is read and discarded."""
    said = b""
    while process.stderr is not None and (part := await process.stderr.read(MOST_OUTPUT)):
        said += part[: MOST_OUTPUT - len(said)]
    await process.wait()
    return " ".join(said.decode(errors="replace").replace("\0", "").split())
