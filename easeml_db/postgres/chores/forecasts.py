"""Stored forecasts of the runs under way, so that a query about a run need not compute one.

They are made beside the loop: in the background, by a separate session, one run at a time, tenants in turn. Three
things bound their cost: a timeout, a rest of four times as long after each forecast, and a minimum interval for each
run. So forecasts take no more than a fifth of a core, however many runs there are and however large.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from easeml_db.errors import EasemlError
from easeml_db.postgres.chores.repeated_chores import LOOK_SECONDS, RepeatedChore
from easeml_db.postgres.stores.store_session import StoreSession

RESTS = 4  # times as long as the forecast took


@dataclass(frozen=True)
class Cadence:
    """How often a run is forecast: every `first_seconds` while its times are unknown; then after each twentieth of its
    age, at most every `least_seconds` and at least every `most_seconds`. No statement of a forecast takes longer than
    `timeout_seconds`; after a failed one the run rests for `failed_seconds`.
    """

    first_seconds: float = 1.0
    least_seconds: float = 5.0
    most_seconds: float = 60.0
    timeout_seconds: float = 30.0
    failed_seconds: float = 300.0


class Forecasts(RepeatedChore):
    """Forecasts runs, one at a time."""

    def __init__(self, leading: StoreSession, cadence: Cadence | None = None) -> None:
        self._cadence = cadence or Cadence()
        super().__init__(leading, "forecasts", statement_timeout=f"{self._cadence.timeout_seconds:g}s")
        self._last_tenant = ""
        self._resting: dict[int, float] = {}  # runs that are not to be forecast before a time of the monotonic clock

    async def take_turn(self) -> float:
        """Forecast the run that has waited longest, if one is due; return for how many seconds to rest."""
        began = time.monotonic()
        run_id: int | None = None
        try:
            session = await self._session()
            run_id = await self._due(session, began)
            if run_id is not None:
                await self._record(session, run_id)
        except EasemlError:  # a timeout, locked rows, no server: the next turn tries again
            await self._leave()
            if run_id is not None:
                self._resting[run_id] = began + self._cadence.failed_seconds
        return max(LOOK_SECONDS, RESTS * (time.monotonic() - began))

    async def _record(self, session: StoreSession, run_id: int) -> None:
        """Forecast a run in three statements: the longest, which computes, has no snapshot."""
        standing = (await session.row("run_standing", run_id=run_id)).get("standing")
        made = None if standing is None else await session.row("make_forecast_apart", standing=standing)
        await session.row("record_forecast", run_id=run_id, made=None if made is None else json.dumps(made))

    async def _due(self, session: StoreSession, now: float) -> int | None:
        self._resting = {run_id: until for run_id, until in self._resting.items() if until > now}
        row = await session.row(
            "due_forecast", resting=list(self._resting), last_tenant=self._last_tenant,
            first_seconds=self._cadence.first_seconds, least_seconds=self._cadence.least_seconds,
            most_seconds=self._cadence.most_seconds,
        )  # fmt: skip
        self._last_tenant = row.get("tenant", "")
        return row.get("run_id")
