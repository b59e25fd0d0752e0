"""Plans of runs in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from easeml_db.decisions.planner.job import StageKey
from easeml_db.decisions.planner.prices import PriceList, instance_type
from easeml_db.decisions.planner.run_plan import RunPlan, StageRecord, planned_stages
from easeml_db.postgres.stores.store_session import StoreSession


class PostgresPlans:
    """PlanStore on PostgreSQL."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def read(self, run_id: int) -> RunPlan | None:
        """Return the plan in force for a run; None if there is none."""
        row = await self._session.row("read_plan", run_id=run_id)
        if not row or not row["types"] or row["provisioner"] is None:
            return None
        stages = await self._session.rows("read_planned_stages", run_id=run_id, revision=row["revision"])
        open_stages = await self._session.rows("read_stage", run_id=run_id)
        prices = PriceList(row["price_list"], tuple(instance_type(type_row) for type_row in row["types"]))
        return RunPlan(
            run_id, row["revision"], planned_stages(stages), prices, row["provisioner"], row["made_seconds"],
            row["seconds_mean"], row["seconds_p95"], row["cost_before"], row["deadline_seconds"], row["max_cost"],
            row["max_slots"], row["is_local"], row["n_stages"], row["ended_cost"],
            _stage_of(open_stages[0]) if open_stages else None,
        )  # fmt: skip

    async def standing(self, run_id: int) -> Mapping[str, Any] | None:
        """Return a run's progress and known times; None if it is over."""
        standing: Mapping[str, Any] | None = (await self._session.row("read_standing", run_id=run_id)).get("standing")
        return standing

    async def slot_seconds(self, run_id: int) -> float:
        """Return the slot time of a run's recorded units."""
        return float((await self._session.row("slot_seconds", run_id=run_id))["seconds"])

    async def keep(self, run_id: int, plan: Mapping[str, Any]) -> None:
        """Record a new plan with its stages."""
        journal = {**plan, "run_id": run_id, "lease_number": self._session.lease_number}
        await self._session.write("keep_revision", journal=json.dumps(journal))

    async def keep_stage(self, run_id: int, stage: StageRecord) -> None:
        """Record a stage as it begins, and again as it ends."""
        journal = {
            **vars(stage), **stage.key._asdict(), "run_id": run_id, "lease_number": self._session.lease_number,
        }  # fmt: skip
        del journal["key"]
        await self._session.write("keep_stage", journal=json.dumps(journal))


def _stage_of(row: Mapping[str, Any]) -> StageRecord:
    key = StageKey(row["arm"], row["bracket"], row["target_epochs"])
    return StageRecord(
        row["place"], row["revision"], key, row["label"], row["began_seconds"], row["n_trials"], row["n_slots"],
        row["cost_before"], row["n_failures"], row["n_beside"],
    )  # fmt: skip
