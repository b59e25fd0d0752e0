"""What water-filled runs need of the tables: profiles of devices that are known, and a record of what was decided."""

from __future__ import annotations

from easeml_db.coordinator.ports import Store
from easeml_db.decisions.hopper.dispatch import Dispatcher
from easeml_db.errors import StaleLease, StandbyOnly


class Allocations:
    """Asked by the coordinator's loop, before units are given out and after."""

    def __init__(self, store: Store, dispatcher: Dispatcher) -> None:
        self._store, self._dispatcher = store, dispatcher

    async def look_up(self) -> None:
        """Tell runs that are new what is known of devices."""
        for run_id, filling in self._dispatcher.fillings().items():
            if not filling.is_profiled:
                filling.set_profiles(await self._store.profiles(run_id))

    async def keep(self) -> None:
        """Write down what was measured and decided. Raises StandbyOnly when the lease is lost."""
        for run_id, filling in self._dispatcher.fillings().items():
            for found in filling.take_profiles():
                await self._store.keep_profile(run_id, found.architecture, found.device_kind, found.measured)
            log, labels = filling.take_log(self._dispatcher.n_open(run_id))
            if not log:
                continue
            try:
                await self._store.keep_allocations(run_id, log, labels)
            except StaleLease as error:
                raise StandbyOnly("another coordinator took over") from error
