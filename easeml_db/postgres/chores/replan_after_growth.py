"""Replanning after tables have grown: in sessions of slots, of clients that predict or read, and of the coordinator.

A session keeps its plans. A plan that was made while a table had one page scans all of it until statistics change.
Autovacuum checks for that once a minute, but a tenant whose runs have many trials fills a table in less.
"""

from __future__ import annotations

import time

from easeml_db.errors import EasemlError
from easeml_db.postgres.chores.repeated_chores import LOOK_SECONDS, RepeatedChore
from easeml_db.postgres.stores.store_session import StoreSession

RESTS = 4  # times as long as the look took: one that finds nothing takes less than a millisecond


class GrownTables(RepeatedChore):
    """Looks at the tables, once a second."""

    def __init__(self, leading: StoreSession) -> None:
        super().__init__(leading, "statistics")

    async def take_turn(self) -> float:
        """Renew the statistics of tables that have grown; return for how many seconds to rest."""
        began = time.monotonic()
        try:
            await (await self._session()).row("analyse_grown")
        except EasemlError:  # locked rows, no server: the next check tries again
            await self._leave()
        return max(LOOK_SECONDS, RESTS * (time.monotonic() - began))
