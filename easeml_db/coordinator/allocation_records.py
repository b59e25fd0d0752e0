"""Device profiles that allocations read, and the log of their decisions."""

from __future__ import annotations

from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.ports.allocations import AllocationStore
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher


class AllocationRecords:
    """Asked by the coordinator's loop, before units are given out and after."""

    def __init__(self, store: AllocationStore, lease: Lease, dispatcher: Dispatcher) -> None:
        self._store, self._lease, self._dispatcher = store, lease, dispatcher

    async def look_up(self) -> None:
        """Give new runs the known profiles of devices."""
        for run_id, records in self._dispatcher.records().items():
            if not records.is_profiled:
                records.set_profiles(await self._store.profiles(run_id))

    async def keep(self) -> None:
        """Record measurements and decisions. Raises StandbyOnly when the lease is lost."""
        for run_id, records in self._dispatcher.records().items():
            for profile in records.take_profiles():
                await self._store.keep_profile(run_id, profile.architecture, profile.device_kind, profile.measured)
            log, labels = records.take_log()
            if log:
                await self._lease.write(self._store.keep_allocations(run_id, log, labels))
