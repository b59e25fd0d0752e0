"""How units reach the partitions of a segment: the one seam between the executor and kinds of servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from easeml_db.postgres.sessions.unit_session import UnitSession
from easeml_db.words.topology import Slot


class Engine(Protocol):
    """Servers on which units run. No other code knows which one a slot is on, or where its rows and states are."""

    async def open_session(self, slot: Slot) -> UnitSession:
        """Open and warm the session of a slot. Raises EasemlError or psycopg.Error."""

    async def given_up(self, pids: Mapping[int, int]) -> Mapping[int, float]:
        """Cancel and terminate units silent for too long; return the slots to give up. `pids`: by busy slot."""

    async def close(self) -> None:
        """Close the resources that the sessions of all slots share."""
