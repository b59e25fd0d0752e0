"""Reading of new and changed runs, many in a few statements, while units of other runs continue.

It reads a burst of a thousand runs a hundred at a time, and opens arms of each hundred before it reads the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from easeml_db.coordinator.arm_opening import ArmOpening
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.coordinator.ports.tenancy import TenancyStore
from easeml_db.decisions.hopper.dispatch.open_runs import OpenRuns

READ_AT_ONCE = 100  # runs


class RunReading:
    """Which runs are to be read. After each, `after_each` is called with its number and whether it is open."""

    def __init__(
        self,
        runs: RunStore,
        tenancy: TenancyStore,
        known: OpenRuns,
        arms: ArmOpening,
        after_each: Callable[[int, bool], Awaitable[None]],
    ) -> None:
        self._runs, self._tenancy, self._known, self._arms = runs, tenancy, known, arms
        self._after_each = after_each
        self._told: dict[int, None] = {}  # in the order of the notifications

    def __bool__(self) -> bool:
        return bool(self._told)

    def told(self, run_id: int) -> None:
        """Read a run at the next turn."""
        self._told[run_id] = None

    async def take_up(self) -> None:
        """Read all open runs with their progress, in the order in which the policy met them."""
        memory = await self._arms.take_up()
        places = {run_id: place for place, run_id in enumerate(memory.get("policy", {}).get("runs", ()))}
        run_ids = sorted(await self._runs.open_runs(), key=lambda run_id: (places.get(run_id, len(places)), run_id))
        for first in range(0, len(run_ids), READ_AT_ONCE):
            await self._read(run_ids[first : first + READ_AT_ONCE])
        self._arms.remember(memory)

    async def read_some(self) -> None:
        """Read the runs of which changes were reported; if there are very many, only the first."""
        run_ids = [*islice(self._told, READ_AT_ONCE)]
        for run_id in run_ids:
            del self._told[run_id]
        if run_ids:
            await self._read(run_ids)

    async def _read(self, run_ids: Sequence[int]) -> None:
        new = [run_id for run_id in run_ids if run_id not in self._known]
        if len(new) > 1:
            await self._runs.read_ahead(new)
            await self._tenancy.read_ahead(new)
        for run_id in run_ids:
            await self._after_each(run_id, await self._arms.read(run_id))
        await self._arms.keep_records()
