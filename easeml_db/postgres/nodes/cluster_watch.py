"""Watches units on a cluster by whether its coordinator answers: the silence of a unit cannot be measured there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

from easeml_db.errors import ServerUnavailable
from easeml_db.postgres.connection import connect


class ClusterWatch:
    """A session that asks the coordinator of a cluster for nothing but an answer.

    A unit is one statement, so its transaction is as old as it: age is no sign of a stuck one.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._session: psycopg.AsyncConnection[dict[str, Any]] | None = None

    async def given_up(self, pids: Mapping[int, int]) -> dict[int, float]:
        """Return no slot: a coordinator that does not answer keeps this call waiting, and the caller measures that."""
        if pids:
            try:
                if self._session is None or self._session.closed:
                    self._session = await connect(self._dsn, "easeml coordinator (watch)")
                await self._session.execute("SELECT 1")
            except (psycopg.Error, ServerUnavailable):
                await self.close()
        return {}

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None
