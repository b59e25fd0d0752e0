"""How units reach the partitions of a segment: the one seam between the executor and a kind of server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from easeml_db.postgres.slot_session import open_session
from easeml_db.postgres.stuck_units import StuckUnits
from easeml_db.postgres.unit_session import UnitSession
from easeml_db.words.topology import Slot


class Engine(Protocol):
    """A server on which units run."""

    async def open_session(self, slot: Slot) -> UnitSession:
        """Open and warm the session of a slot. Raises EasemlError or psycopg.Error."""

    async def given_up(self, pids: Mapping[int, int]) -> Mapping[int, float]:
        """Cancel and terminate what is silent for too long; return the slots to give up. `pids`: by busy slot."""

    async def close(self) -> None:
        """Close what the sessions of all slots share."""


class ThisServer:
    """The server of the coordinator itself: a session reads, trains and records by itself."""

    def __init__(self, dsn: str, unit_lease_seconds: float) -> None:
        self._dsn, self._stuck = dsn, StuckUnits(dsn, unit_lease_seconds)

    async def open_session(self, slot: Slot) -> UnitSession:
        """Open and warm the session of a slot. Raises EasemlError or psycopg.Error."""
        return await open_session(self._dsn, slot.slot_id)

    async def given_up(self, pids: Mapping[int, int]) -> Mapping[int, float]:
        """Cancel and terminate what is silent for too long; return the slots to give up."""
        return await self._stuck.given_up(pids)

    async def close(self) -> None:
        """Close the session that looks after the units."""
        await self._stuck.close()
