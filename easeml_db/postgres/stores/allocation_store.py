"""Profiles of devices and the log of allocations, in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from easeml_db.decisions.trial_groups.allocation import AllocationLog, ShareChange
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.postgres.stores.store_session import StoreSession


class PostgresAllocations:
    """AllocationStore on PostgreSQL."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def profiles(self, run_id: int) -> Mapping[tuple[str, str], MeasuredProfile]:
        """Return the known device profiles for the run's dataset, by (architecture, kind of device)."""
        return {
            (row.pop("architecture"), row.pop("device_kind")): _profile(row)
            for row in await self._session.rows("read_profiles", run_id=run_id)
        }

    async def keep_profile(self, run_id: int, architecture: str, device_kind: str, measured: MeasuredProfile) -> None:
        """Record the profile that was measured before a run's first units."""
        values = asdict(measured)
        values |= values.pop("profile") | {"measurements": json.dumps(measured.measurements, allow_nan=False)}
        await self._session.write(
            "keep_profile", run_id=run_id, architecture=architecture, device_kind=device_kind, **values
        )

    async def keep_allocations(self, run_id: int, log: AllocationLog, labels: Mapping[int, str]) -> None:
        """Record trial groups, labelled by number, and who got which devices."""
        document = {
            "run_id": run_id, "lease_number": self._session.lease_number, "ended": log.ended,
            "groups": [
                {"group_number": g.group_number, "label": labels[g.group_number], "n_trials": len(g.trial_ids)}
                for g in log.groups
            ],
            "decisions": [_share_change(change) for change in log.changes],
        }  # fmt: skip
        await self._session.write("keep_allocations", journal=json.dumps(document))


def _profile(row: dict[str, Any]) -> MeasuredProfile:
    return MeasuredProfile(Profile(*(row.pop(name) for name in ("alpha", "beta", "c", "d"))), **row)


def _share_change(change: ShareChange) -> dict[str, Any]:
    share = change.share
    return {
        "group_number": change.group_number, "trial_id": share.trial_id, "width": share.width,
        "reason": change.reason, "devices": [device.name for device in share.devices],
        "slot_ids": [slot for device in share.devices for slot in device.slot_ids],
    }  # fmt: skip
