"""How many slots may work for a tenant at once, and how many do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from easeml_db.decisions.hopper.dispatch.open_runs import OpenRuns
from easeml_db.decisions.hopper.dispatch.slot_board import SlotBoard


class TenantLimits:
    """Limits by tenant; a tenant without one may have all slots. Slots of runs that are open no more do not count."""

    def __init__(self, board: SlotBoard, runs: OpenRuns) -> None:
        self._board, self._runs = board, runs
        self._limits: dict[str, int] = {}
        self.version = 0  # grows with every change

    def __contains__(self, tenant: object) -> bool:
        return tenant in self._limits

    def __iter__(self) -> Iterator[str]:
        return iter(self._limits)

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """Limit how many slots work for tenants at once, from the next unit on."""
        self._limits = dict(limits)
        self.version += 1

    def of(self, tenant: str, *, default: int) -> int:
        """Return how many slots may work for a tenant; `default` if there is no limit."""
        return self._limits.get(tenant, default)

    def n_allowed(self, tenant: str) -> int | None:
        """Return how many more slots may begin to work for a tenant; None: any number."""
        if tenant not in self._limits:
            return None
        return max(0, self._limits[tenant] - len(self.working_for(tenant)))

    def working_for(self, tenant: str) -> set[int]:
        """Return the slots that work for a tenant."""
        runs = self._runs
        return {
            slot
            for run_id, slots in self._board.busy_runs()
            if run_id in runs and runs[run_id].run.tenant == tenant
            for slot in slots
        }
