"""Planned runs in a simulated world: a search, its first plan as easeml.select_models writes it down, and its slots."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.settings import Settings
from easeml_db.decisions.planner.declared import declared_stages
from easeml_db.decisions.planner.documents import plan_rows
from easeml_db.decisions.planner.job import Job, StageKey, architectures_of
from easeml_db.decisions.planner.knowledge import Knowledge
from easeml_db.decisions.planner.planning import Goal, make_plans
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.run_plan import PlannedStage, RunPlan, planned_stages
from easeml_db.decisions.planner.simulation import Simulator
from easeml_db.simulated import Killed, SimulatedProcess, SimulatedWorld
from easeml_db.words.instance import LOCAL
from easeml_db.words.run import PLANNED, Run
from easeml_db.words.topology import Slot
from tests.unit.test_searches import P, run_of, score_of, search_of

UNIT_SECONDS = 1.0
LOCAL_SLOT = InstanceType("cpu slot", "cpu", 1, 3600.0)


def unit_seconds(spread: float, seed: int = 0) -> Callable[[Any, int], float]:
    """Seconds of a unit, lognormal with mean 1; the same unit always takes the same time."""
    sigma = math.sqrt(math.log1p(spread**2))

    def seconds_of(unit: Any, slot_id: int) -> float:
        drawn = random.Random(f"{seed} {unit.trial_number} {unit.step} {unit.kind}").gauss(0.0, 1.0)
        return UNIT_SECONDS * math.exp(sigma * drawn - sigma**2 / 2)

    return seconds_of


def known_rows(names: Sequence[str], spread: float, n: int = 12) -> list[dict[str, Any]]:
    """What earlier trials of these architectures took: an epoch is a train and a validate unit on each partition."""
    return [
        {"architecture": name, "device_kind": "cpu", "n_slots": 1, "is_same": True, "scale": 1,
         "epoch_seconds": 2 * P * UNIT_SECONDS, "sd_seconds": spread * UNIT_SECONDS * math.sqrt(2 * P), "n_epochs": 4}
        for name in names
        for _ in range(n)
    ]  # fmt: skip


def planned_run(
    run_id: int = 1,
    *,
    procedure: str = "successive_halving",
    n_configs: int = 8,
    max_epochs: int = 8,
    n_arms: int = 1,
    tenant: str = "tenant",
    **options: Any,
) -> Run:
    """A queued run that follows a plan."""
    search = search_of(procedure, n_arms=n_arms, max_epochs=max_epochs, n_configs=n_configs)
    return replace(run_of(run_id, search), allocation=PLANNED, tenant=tenant, **options)


def first_plan(
    run: Run, prices: PriceList, goal: Goal | None = None, *, provisioner: str = LOCAL, spread: float = 0.3
) -> RunPlan:
    """The plan with which a run begins."""
    assert run.search is not None
    stages, goal = declared_stages(run.search), goal or Goal()
    names = architectures_of(stages)
    known = {
        "trials": known_rows(names, spread), "speedups": None, "curves": None, "max_slots": None, "data_gb": 0.0,
        "n_partitions": P, "whole": [], "joint": [],
    }  # fmt: skip
    kinds = [each.device_kind for each in prices.types]
    simulator = Simulator(Job(stages, Knowledge(known, "d").profiles(names, kinds, is_local=False)), prices)
    rows = plan_rows(simulator, make_plans(simulator, goal)[0], "")
    total = rows[-1]
    return RunPlan(
        run.run_id, 1, planned_stages(rows[:-1]), prices, provisioner, 0.0, total["seconds_mean"],
        total["seconds_p95"], deadline_seconds=goal.deadline_seconds, max_cost=goal.max_cost,
        is_local=provisioner == LOCAL,
    )  # fmt: skip


def one_stage(run_id: int, n_slots: int, *, seconds: float = 10.0) -> RunPlan:
    """A plan of one stage for all trials of a run, on slots of this server."""
    stage = PlannedStage(StageKey(), "all", 1, LOCAL_SLOT.name, n_slots, n_slots, 1, seconds, seconds)
    return RunPlan(run_id, 1, (stage,), PriceList("local", (LOCAL_SLOT,)), LOCAL, 0.0, seconds, seconds)


def world_with(
    runs: Sequence[Run],
    plans: Sequence[RunPlan],
    *,
    n_slots: int = 4,
    spread: float = 0.3,
    seed: int = 0,
    **options: Any,
) -> SimulatedWorld:
    """A world in which these runs are asked for, with their plans."""
    slots = [Slot(i, f"slot-{i}", 1) for i in range(1, n_slots + 1)]
    world = SimulatedWorld(slots, runs, seconds_of=unit_seconds(spread, seed), score_of=score_of, **options)
    for run in runs:
        for trial in run.trials:
            world.tables.begun[trial.trial_id] = {}, None, 0
    names = {name for run in runs for name in run.architectures.values()}
    world.tables.plans_table.known = known_rows(sorted(names), spread)
    world.tables.plans_table.plans = {plan.run_id: plan for plan in plans}
    return world


def serve(world: SimulatedWorld, dies_at_call: int | None = None) -> SimulatedProcess:
    """Let one coordinator work until nothing is left, or it dies."""
    process = SimulatedProcess(world, dies_at_call)
    try:
        asyncio.run(Coordinator(process.ports, Settings()).serve(until_idle=True))
    except Killed:
        assert process.is_dead
    return process


def finished_seconds(world: SimulatedWorld, run_id: int = 1) -> float:
    """When the last unit of a run was recorded."""
    return max(unit.finished_seconds for unit in world.units if unit.order.unit.run_id == run_id)


def slots_used(world: SimulatedWorld, run_id: int, epoch: int) -> set[int]:
    """The slots on which an epoch of a run was trained."""
    return {
        unit.order.slot_id
        for unit in world.units
        if unit.order.unit.run_id == run_id and unit.order.unit.epoch == epoch
    }
