"""Reading of new and changed runs, many in a few statements, while units of other runs continue.

It reads a burst of a thousand runs a hundred at a time, and opens arms of each hundred before it reads the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from easeml_db.coordinator.arm_opening import ArmOpening
from easeml_db.coordinator.effects import CancelUnits, HandleMessages, Work
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.coordinator.ports.tenancy import TenancyStore
from easeml_db.decisions.hopper.dispatch.open_runs import OpenRuns

READ_AT_ONCE = 100  # runs


class RunReading:
    """The runs to read. After each one, units of others continue."""

    def __init__(self, runs: RunStore, tenancy: TenancyStore, open_runs: OpenRuns, arms: ArmOpening) -> None:
        self._runs, self._tenancy, self._open_runs, self._arms = runs, tenancy, open_runs, arms
        self._reported: dict[int, None] = {}  # in the order of the notifications

    def __bool__(self) -> bool:
        return bool(self._reported)

    def report(self, run_id: int) -> None:
        """Read a run at the next turn."""
        self._reported[run_id] = None

    async def take_up(self) -> Work:
        """Read all open runs with their progress, in the order in which the policy met them."""
        memory = await self._arms.take_up()
        places = {run_id: place for place, run_id in enumerate(memory.get("policy", {}).get("runs", ()))}
        run_ids = sorted(await self._runs.open_runs(), key=lambda run_id: (places.get(run_id, len(places)), run_id))
        for first in range(0, len(run_ids), READ_AT_ONCE):
            async for effect in self._read(run_ids[first : first + READ_AT_ONCE]):
                yield effect
        self._arms.remember(memory)

    async def read_some(self) -> Work:
        """Read the runs of which changes were reported; if there are very many, only the first."""
        run_ids = [*islice(self._reported, READ_AT_ONCE)]
        for run_id in run_ids:
            del self._reported[run_id]
        if run_ids:
            async for effect in self._read(run_ids):
                yield effect

    async def _read(self, run_ids: Sequence[int]) -> Work:
        new = [run_id for run_id in run_ids if run_id not in self._open_runs]
        if len(new) > 1:
            await self._runs.read_ahead(new)
            await self._tenancy.read_ahead(new)
        for run_id in run_ids:
            if not await self._arms.read(run_id):
                yield CancelUnits(run_id)
            yield HandleMessages()
        await self._arms.keep_records()
