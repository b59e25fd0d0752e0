"""Slot time of failed units: a tenant that holds its own row has nobody else wait at each of its failures."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from easeml_db.coordinator.failed_time import FailedTime


class _Tenancy:
    """Rows of tenants, of which some are locked."""

    def __init__(self, held: set[str]) -> None:
        self.held, self.charged = held, dict[str, float]()
        self.n_refused = 0

    async def charge(self, tenant: str, seconds: float) -> bool:
        if tenant in self.held:
            self.n_refused += 1
            return False
        self.charged[tenant] = self.charged.get(tenant, 0.0) + seconds
        return True


def test_a_tenant_that_holds_its_row_is_asked_once_until_the_next_heartbeat() -> None:
    tenancy, due = _Tenancy({"mallory"}), {"mallory": 1.0, "victim": 2.0}
    failed_time = FailedTime(cast("Any", tenancy), due)

    async def fail_often() -> None:
        for _ in range(5):
            due["mallory"] += 1.0
            await failed_time.charge()
        assert tenancy.n_refused == 1
        assert tenancy.charged == {"victim": 2.0}
        await failed_time.charge_held()
        assert tenancy.n_refused == 2
        tenancy.held.clear()
        await failed_time.charge_held()

    asyncio.run(fail_often())
    assert tenancy.charged == {"victim": 2.0, "mallory": 6.0}
    assert due == {}
