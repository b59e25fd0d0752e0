"""Units that give no sign of life: a separate session watches for them, and escalates.

A unit commits about ten times a second, so the age of its process's transaction is the time since it last showed life.
Beyond its lease a unit is cancelled, then its process is terminated. A unit that reacts to neither is stuck in code
that cannot be interrupted, and its slot is given up. A unit that waits for somebody's lock does not count as stuck.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from easeml_db.errors import ServerUnavailable
from easeml_db.postgres.connection import connect

GRACE_SECONDS = 5.0  # between one step and the next, or the lease where that is shorter
SILENT = """
SELECT pid, extract(epoch FROM clock_timestamp() - greatest(xact_start, state_change))::double precision AS seconds,
    wait_event_type IS NOT DISTINCT FROM 'Lock' AS is_waiting
FROM pg_stat_activity WHERE pid = ANY(%s) AND state = 'active'
"""
ACTIONS = {"cancel": "SELECT pg_cancel_backend(%s)", "terminate": "SELECT pg_terminate_backend(%s)"}


def escalation(silent_seconds: float, lease_seconds: float) -> str | None:
    """Return the reaction to a silence: nothing (None), cancel, terminate, or give up."""
    grace_seconds = min(GRACE_SECONDS, lease_seconds)
    if silent_seconds < lease_seconds:
        return None
    if silent_seconds < lease_seconds + grace_seconds:
        return "cancel"
    return "terminate" if silent_seconds < lease_seconds + 2 * grace_seconds else "give up"


class StuckUnits:
    """Looks at the processes of busy slots. `lease_seconds` is how long a unit may be silent."""

    def __init__(self, dsn: str, lease_seconds: float) -> None:
        self._dsn, self._lease_seconds = dsn, lease_seconds
        self._session: psycopg.AsyncConnection[dict[str, Any]] | None = None
        self._waited: dict[int, float] = {}  # seconds of silence up to the last time that a process waited for a lock

    async def given_up(self, pids: Mapping[int, int]) -> dict[int, float]:
        """Cancel and terminate units that are silent for too long; return those to give up, with their seconds of
        silence.

        `pids` gives the process of each busy slot. No unit is given up while the server does not answer.
        """
        if not pids:
            return {}
        try:
            silent = await self._silent_seconds(list(pids.values()))
            return {
                slot: silent[pid] for slot, pid in pids.items() if pid in silent and await self._react(pid, silent[pid])
            }
        except (psycopg.Error, ServerUnavailable):
            await self.close()
            return {}

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _react(self, pid: int, silent_seconds: float) -> bool:
        """React to a silence; return whether the unit is given up."""
        action = escalation(silent_seconds, self._lease_seconds)
        if action in ACTIONS and self._session is not None:
            await self._session.execute(ACTIONS[action].encode(), [pid])
        return action == "give up"

    async def _silent_seconds(self, pids: list[int]) -> dict[int, float]:
        if self._session is None or self._session.closed:
            self._session = await connect(self._dsn, "easeml coordinator (watch)", idle_session_timeout="0")
        rows = await (await self._session.execute(SILENT, [pids])).fetchall()
        self._waited = {
            row["pid"]: row["seconds"] if row["is_waiting"] else self._waited[row["pid"]]
            for row in rows
            if row["is_waiting"] or self._waited.get(row["pid"], row["seconds"]) < row["seconds"]
        }
        return {row["pid"]: row["seconds"] - self._waited.get(row["pid"], 0.0) for row in rows}
