"""Slot time of failed or cancelled units, which counts towards their tenant's usage like that of recorded units."""

from __future__ import annotations

from easeml_db.coordinator.ports.messages import Order
from easeml_db.coordinator.ports.tenancy import TenancyStore


class FailedTime:
    """When each unit began and for which tenant, and the seconds still to be charged (`due`: by tenant)."""

    def __init__(self, tenancy: TenancyStore, due: dict[str, float]) -> None:
        self._tenancy, self._due = tenancy, due
        self._begun: dict[int, tuple[float, str]] = {}  # time and tenant, by the first slot of a unit or gang
        self._held: set[str] = set()  # tenants whose open transactions had locked their rows

    def begun(self, slot_id: int, tenant: str, now_seconds: float) -> None:
        """Note that a unit begins: its run may be gone when it ends."""
        self._begun[slot_id] = now_seconds, tenant

    def failed(self, order: Order, now_seconds: float) -> None:
        """Note that a unit failed, and the time that it took on all its slots."""
        started_seconds, tenant = self._begun.get(order.slot_id, (now_seconds, ""))
        if tenant and now_seconds > started_seconds:
            seconds = (now_seconds - started_seconds) * len(order.slot_ids)
            self._due[tenant] = self._due.get(tenant, 0.0) + seconds

    async def charge(self) -> None:
        """Record what is due, except for tenants whose open transactions had locked their rows: each of their failed
        units would make all others wait for the lock.
        """
        for tenant in [tenant for tenant in self._due if tenant not in self._held]:
            if await self._tenancy.charge(tenant, self._due[tenant]):
                del self._due[tenant]
            else:
                self._held.add(tenant)

    async def charge_held(self) -> None:
        """Record all that is due, once a heartbeat."""
        self._held.clear()
        await self.charge()
