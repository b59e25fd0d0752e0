"""A plan that takes long to compute keeps neither its own run nor others waiting; one that fails changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.planned_runs import PLANNING_SECONDS
from easeml_db.decisions.planner.planning import Goal
from easeml_db.decisions.planner.prices import PriceList
from easeml_db.errors import EasemlError
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from tests.unit.coordinator.planned_worlds import LOCAL_SLOT, finished_seconds, first_plan, planned_run, world_with

PRICES = PriceList("local", (LOCAL_SLOT,))
COMPUTED_SECONDS = 7.0


def served(monkeypatch: pytest.MonkeyPatch, *, error: EasemlError | None = None) -> tuple[SimulatedWorld, list[float]]:
    """Serve a planned run beside another; each plan takes 7 s of the clock, or fails. Return when they were asked."""
    run = planned_run()
    world = world_with([run], [first_plan(run, PRICES, Goal(60.0), spread=0.0)], n_slots=3, spread=0.0)
    world.add_run(new_run(2, n_trials=2, n_partitions=1, max_epochs=40))
    process = SimulatedProcess(world)
    at_once = process.ports.answering.ask
    asked: list[float] = []

    class LatePlan(Future[Any]):
        def __init__(self, question: Callable[[], Any]) -> None:
            super().__init__()
            self._question, self._until = question, world.now_seconds + COMPUTED_SECONDS
            asked.append(world.now_seconds)

        def done(self) -> bool:
            return world.now_seconds >= self._until

        def result(self, timeout: float | None = None) -> Any:
            if error is not None:
                raise error
            return self._question()

    def ask(tenant: str, question: Callable[[], Any], seconds: float) -> Future[Any]:
        return LatePlan(question) if seconds == PLANNING_SECONDS else at_once(tenant, question, seconds)

    monkeypatch.setattr(process.ports.answering, "ask", ask)
    asyncio.run(Coordinator(process.ports).serve(until_idle=True))
    return world, asked


def test_both_runs_train_while_the_rest_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    world, asked = served(monkeypatch)
    assert world.tables.runs_by_id[1].status == world.tables.runs_by_id[2].status == "finished"
    while_planned = [
        unit.order.unit.run_id
        for unit in world.units
        if any(seconds < unit.finished_seconds <= seconds + COMPUTED_SECONDS for seconds in asked)
    ]
    assert set(while_planned) == {1, 2}
    assert finished_seconds(world) < 60.0 + 2 * COMPUTED_SECONDS
    assert world.tables.plans_table.revisions, "later plans are followed"


def test_a_run_keeps_its_plan_where_no_other_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    world, asked = served(monkeypatch, error=EasemlError("it takes more than 10 s of processor time"))
    assert asked
    assert world.tables.runs_by_id[1].status == world.tables.runs_by_id[2].status == "finished"
    assert world.tables.plans_table.revisions == []
