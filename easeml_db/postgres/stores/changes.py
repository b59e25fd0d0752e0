"""Changes by others, found by polling: runs that are requested, cancelled, resumed or dropped, slots, settings of
tenants.

Nothing here uses LISTEN. Any role may notify without limit on any channel, and if somebody keeps the queue of
notifications from being read, every NOTIFY of the server fails. A poll costs less than a millisecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from easeml_db.coordinator.ports.messages import Message, RunChanged, SlotsChanged, TenantsChanged
from easeml_db.errors import RowsHeld
from easeml_db.postgres import background
from easeml_db.postgres.stores.store_session import StoreSession

LOOK_SECONDS = 0.2
# Reading a run takes milliseconds, in which no unit is assigned, so very many new runs are reported in parts.
MAX_RUNS_AT_ONCE, NEXT_RUNS_SECONDS = 20, 0.05


@dataclass(frozen=True)
class SeenRun:
    """An open run as a poll finds it. `n_resumes` shows whether it has ended and been resumed since the last poll,
    `holders` whether partitions have moved to other segments.
    """

    tenant: str
    n_resumes: int
    holders: int | None


def changed_runs(before: Mapping[int, SeenRun], now: Mapping[int, SeenRun]) -> list[int]:
    """Return the runs that are over, new or changed, tenants in turn, so that none waits for all runs of another."""
    over = [run_id for run_id in before if run_id not in now]
    others = [run_id for run_id, seen in now.items() if seen != before.get(run_id)]
    by_tenant: dict[str, list[int]] = {}
    for run_id in over + others:
        by_tenant.setdefault((now.get(run_id) or before[run_id]).tenant, []).append(run_id)
    return [run_id for run_id in chain(*zip_longest(*by_tenant.values())) if run_id is not None]


class Changes:
    """Delivers a message for each change since the last poll; its own session waits for no other statement."""

    def __init__(self, dsn: str, deliver: Callable[[Message], None]) -> None:
        self._session = StoreSession(dsn, "easeml coordinator (changes)")
        self._deliver = deliver
        self._runs: dict[int, SeenRun] = {}
        self._slots = self._terms = 0
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect."""
        await self._session.open()

    async def close(self) -> None:
        """Stop polling."""
        if self._looking is not None:
            self._looking.cancel()
        await self._session.close()

    async def watch(self) -> None:
        """Deliver changes from now on."""
        row = await self._session.row("look")
        self._runs = _seen_runs(row)
        self._slots, self._terms = row["slots"], row["terms"]
        self._looking = background.begin(self._look())  # a broken one shows at the next heartbeat

    @property
    def is_lost(self) -> bool:
        """Return whether the session broke."""
        return self._looking is not None and self._looking.done()

    async def _look(self) -> None:
        pause_seconds = LOOK_SECONDS
        while True:
            await asyncio.sleep(pause_seconds)
            try:
                n_left = self.compare(await self._session.row("look"))
            except RowsHeld:  # somebody alters a table
                continue
            pause_seconds = NEXT_RUNS_SECONDS if n_left else LOOK_SECONDS

    def compare(self, row: Mapping[str, Any]) -> int:
        """Deliver changes; return how many runs are left for the next poll."""
        if row["slots"] != self._slots:
            self._deliver(SlotsChanged())
        if row["terms"] != self._terms:
            self._deliver(TenantsChanged())
        self._slots, self._terms = row["slots"], row["terms"]
        now = _seen_runs(row)
        changed = changed_runs(self._runs, now)
        for run_id in changed[:MAX_RUNS_AT_ONCE]:
            self._deliver(RunChanged(run_id))
        left = set(changed[MAX_RUNS_AT_ONCE:])
        # The next poll compares these runs with their former rows again.
        left_runs = {run_id: seen for run_id, seen in self._runs.items() if run_id in left}
        reported = {run_id: seen for run_id, seen in now.items() if run_id not in left}
        self._runs = left_runs | reported
        return len(left)


def _seen_runs(row: Mapping[str, Any]) -> dict[int, SeenRun]:
    columns: list[Sequence[Any]] = [row[name] or () for name in ("run_ids", "tenants", "resumes", "holders")]
    return {run_id: SeenRun(*values) for run_id, *values in zip(*columns, strict=True)}
