"""Plans of runs: what was planned, the progress of a run, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from easeml_db.decisions.planner.run_plan import RunPlan, StageRecord


class PlanStore(Protocol):
    """Reads plans, and records new ones and stages. A write to a run whose rows are locked changes nothing."""

    async def read(self, run_id: int) -> RunPlan | None:
        """Return the plan in force for a run; None if there is none."""

    async def standing(self, run_id: int) -> Mapping[str, Any] | None:
        """Return a run's progress and known times in the form that `make_forecast` takes; None if it is over."""

    async def slot_seconds(self, run_id: int) -> float:
        """Return the slot time of a run's recorded units."""

    async def keep(self, run_id: int, plan: Mapping[str, Any]) -> None:
        """Record a new plan, a row of easeml.plans with its `stages`. Raises StaleLease."""

    async def keep_stage(self, run_id: int, stage: StageRecord) -> None:
        """Record a stage as it begins, and again as it ends. Raises StaleLease."""
