"""Instances in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from easeml_db.postgres.stores.store_session import StoreSession
from easeml_db.words.instance import Bill, Instance, Programs


class PostgresInstances:
    """InstanceStore on PostgreSQL."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def alive(self) -> list[Instance]:
        """Return all instances that are wanted, there, or on their way out."""
        return [_instance(row) for row in await self._session.rows("live_instances")]

    async def local_slots(self) -> int:
        """Return how many slots this server may have."""
        return int((await self._session.row("local_slots"))["n"] or 0)

    async def request(self, run_id: int, provisioner: str, instance_type: str, n: int) -> Sequence[int]:
        """Record that instances are wanted; return their numbers."""
        journal = self._journal(run_id=run_id, provisioner=provisioner, instance_type=instance_type, n=n)
        return [row["instance_id"] for row in await self._session.rows("request_instances", journal=journal)]

    async def billed(self, instance_id: int) -> None:
        """Record that an instance is paid from now on."""
        await self._session.write("bill_instance", instance_id=instance_id)

    async def attach(self, instance_id: int, device: str | None) -> bool:
        """Give a requested instance its slots; return whether there were slots for it."""
        journal = self._journal(instance_id=instance_id, device=device)
        return bool((await self._session.needed("attach_slots", journal=journal)).get("has_slots"))

    async def release(self, instance_id: int) -> None:
        """Return the slots that were taken for an instance, and drain those that were added for it."""
        await self._session.needed("release_instance", journal=self._journal(instance_id=instance_id))

    async def end(self, instance_id: int, status: str, cost: float, reason: str | None = None) -> None:
        """Record that an instance is released, or has failed, and remove the slots that were added for it."""
        journal = self._journal(instance_id=instance_id, status=status, cost=cost, reason=reason)
        await self._session.needed("end_instance", journal=journal)

    async def keep_call(self, instance_id: int, program: str, outcome: str, output: str) -> None:
        """Record the output of a program."""
        journal = self._journal(instance_id=instance_id, program=program, outcome=outcome, output=output)
        await self._session.write("keep_call", journal=journal)

    def _journal(self, **values: object) -> str:
        return json.dumps({**values, "lease_number": self._session.lease_number})


def _instance(row: Mapping[str, Any]) -> Instance:
    programs = None
    if row["start_program"] is not None:
        start, probe, stop = (tuple(row[f"{name}_program"]) for name in ("start", "probe", "stop"))
        programs = Programs(start, probe, stop, row["timeout_seconds"], row["ready_seconds"])
    bill = Bill(
        row["price_per_hour"], row["billed_by"], row["billed_per"] == "function", row["minimum_seconds"],
        row["data_price"],
    )  # fmt: skip
    return Instance(
        row["instance_id"], row["run_id"], row["provisioner"], row["instance_type"], row["n_slots"], row["status"],
        row["request_id"], bill, row["device_kind"], row["billed_seconds"], tuple(row["slot_ids"]), programs,
    )  # fmt: skip
