"""Planned runs in a simulated world, as the experiments make them, and what tests ask of them."""

from __future__ import annotations

import asyncio

from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.settings import Settings
from easeml_db.decisions.planner.job import StageKey
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.run_plan import PlannedStage, RunPlan
from easeml_db.simulated import Killed, SimulatedProcess, SimulatedWorld
from easeml_db.words.instance import LOCAL
from easeml_db.words.run import Run
from easeml_experiments.planner.executions import first_plan, planned_world, search_for, searched_run

__all__ = ["LOCAL_SLOT", "finished_seconds", "first_plan", "one_stage", "planned_run", "serve", "world_with"]
LOCAL_SLOT = InstanceType("cpu slot", "cpu", 1, 3600.0)
world_with = planned_world


def planned_run(run_id: int = 1, *, n_configs: int = 8, max_epochs: int = 8, tenant: str = "tenant") -> Run:
    """A queued run that follows a plan."""
    return searched_run(run_id, search_for(n_configs=n_configs, max_epochs=max_epochs), tenant=tenant)


def one_stage(run_id: int, n_slots: int, *, seconds: float = 10.0) -> RunPlan:
    """A plan of one stage for all trials of a run, on slots of this server."""
    stage = PlannedStage(StageKey(), "all", 1, LOCAL_SLOT.name, n_slots, n_slots, 1, seconds, seconds)
    return RunPlan(run_id, 1, (stage,), PriceList("local", (LOCAL_SLOT,)), LOCAL, 0.0, seconds, seconds)


def serve(world: SimulatedWorld, dies_at_call: int | None = None, *, is_replanning: bool = True) -> SimulatedProcess:
    """Let one coordinator work until nothing is left, or it dies."""
    process = SimulatedProcess(world, dies_at_call)
    try:
        asyncio.run(Coordinator(process.ports, Settings(is_replanning=is_replanning)).serve(until_idle=True))
    except Killed:
        assert process.is_dead
    return process


def finished_seconds(world: SimulatedWorld, run_id: int = 1) -> float:
    """When the last unit of a run was recorded."""
    return max(unit.finished_seconds for unit in world.units if unit.order.unit.run_id == run_id)
