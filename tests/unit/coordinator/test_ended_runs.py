"""What a coordinator remembers does not grow with the number of runs that have ended: it may serve for years."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from easeml_db.coordinator.loop import Coordinator
from easeml_db.decisions.tenancy.history import History
from easeml_db.errors import TrialFailed
from easeml_db.simulated import Faults, SimulatedProcess, new_run
from easeml_db.words.run import Run
from tests.unit.coordinator.test_searches import STAGED, run_of, search_of, world_of

# The last is of bounded size, but grows at first.
NOT_OURS = (BuiltinFunctionType, FunctionType, ModuleType, type, History)


def runs_of_every_kind(n_of_each: int) -> list[Run]:
    """Searches by every procedure, a run without one, a gang, batches and one that is timed, each so many times."""
    runs: list[Run] = []
    for _ in range(n_of_each):
        for procedure in STAGED:
            search = search_of(procedure, n_arms=2, n_configs=None if procedure == "pbt" else 4)
            runs.append(replace(run_of(len(runs) + 1, search), tenant=f"tenant_{len(runs) % 3}"))
        for allocation in ("hopping", "water_filling", "batched"):
            runs.append(
                new_run(
                    len(runs) + 1, n_trials=4, n_partitions=2, max_epochs=2, architectures=("net0", "mlp"),
                    allocation=allocation, max_seconds=30.0 if allocation == "batched" else None,
                )
            )  # fmt: skip
    return runs


def remembered(coordinator: Coordinator) -> list[Any]:
    """All that can be reached from a coordinator, but for the simulated world itself."""
    found: dict[int, Any] = {}
    to_see: list[Any] = [coordinator]
    while to_see:
        one = to_see.pop()
        is_of_world = type(one).__module__.startswith("easeml_db.simulated")
        if id(one) not in found and not is_of_world and not isinstance(one, NOT_OURS):
            found[id(one)] = one
            to_see += gc.get_referents(one)
    return list(found.values())


def remembered_after(n_of_each: int) -> int:
    runs = runs_of_every_kind(n_of_each)
    searched = [run for run in runs if run.search is not None]
    world = world_of(searched, faults=Faults(failure_of=_failure_of))
    for run in runs:
        if run.search is None:
            world.add_run(run)
    coordinator = Coordinator(SimulatedProcess(world).ports)
    asyncio.run(coordinator.serve(until_idle=True))
    assert {world.tables.run(run.run_id).status for run in runs} == {"finished"}
    return len(remembered(coordinator))


def _failure_of(order: Any) -> TrialFailed | None:
    """Of some runs a trial fails: a unit that is lost would make its slot forget everything."""
    fails = order.unit.trial_number == 2 and order.unit.run_id % 3 == 0 and order.unit.step == 1
    return TrialFailed("a trial of an ended run") if fails else None


def test_what_is_remembered_of_ended_runs_does_not_grow_with_their_number() -> None:
    assert remembered_after(3) < remembered_after(1) + 20
