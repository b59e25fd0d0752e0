"""Device profiles, and the record of which trial got which devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from easeml_db.decisions.trial_groups.allocation import AllocationLog
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile


class AllocationStore(Protocol):
    """Keeps profiles of devices, and a log of how runs shared them out."""

    async def profiles(self, run_id: int) -> Mapping[tuple[str, str], MeasuredProfile]:
        """Return the known device profiles for the run's dataset, by (architecture, kind of device)."""

    async def keep_profile(self, run_id: int, architecture: str, device_kind: str, measured: MeasuredProfile) -> None:
        """Record the profile that was measured before a run's first units. A stale lease records nothing."""

    async def keep_allocations(self, run_id: int, log: AllocationLog, labels: Mapping[int, str]) -> None:
        """Record trial groups, labelled by number, and who got which devices. Raises StaleLease."""
