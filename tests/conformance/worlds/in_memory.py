"""The simulated world."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from easeml_db.decisions.planner.job import StageKey
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.run_plan import PlannedStage, RunPlan
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.run import Search
from easeml_db.words.topology import Slot
from tests.conformance.worlds.world import MAX_EPOCHS, N_PARTITIONS, World


class InMemory(World):
    """The simulated world."""

    def __init__(self) -> None:
        slots = [Slot(i, f"slot-{i}", 1) for i in (1, 2)]
        self._world = SimulatedWorld(slots, seconds_of=lambda unit, slot_id: 0.1, warm_seconds=0.1)
        self._process = SimulatedProcess(self._world)
        self.ports, self._tables, self._n_runs = self._process.ports, self._world.tables, 0

    @property
    def lease_number(self) -> int:
        return self._process.lease_number

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield
        await self.ports.executor.close()

    def ask_for_run(self, *, is_searched: bool = False) -> int:
        self._n_runs += 1
        names = ("linear", "mlp")
        run = new_run(self._n_runs, n_trials=2, n_partitions=N_PARTITIONS, max_epochs=MAX_EPOCHS, architectures=names)
        if is_searched:
            run = replace(run, search=Search("[]", None, "successive_halving", max_epochs=MAX_EPOCHS))
        self._world.add_run(run)
        return self._n_runs

    def ask_for_trees(self) -> int:
        self._n_runs += 1
        options = {"n_trials": 1, "n_partitions": N_PARTITIONS, "max_epochs": MAX_EPOCHS}
        self._world.add_run(new_run(self._n_runs, **options, architectures=("trees",)))
        return self._n_runs

    def ask_for_alike(self) -> int:
        self._n_runs += 1
        options = {"n_trials": 3, "n_partitions": N_PARTITIONS, "max_epochs": MAX_EPOCHS, "allocation": "batched"}
        self._world.add_run(new_run(self._n_runs, **options, batch_key_of=lambda number: "alike"))
        return self._n_runs

    def ask_for_plan(self) -> int:
        run_id = self.ask_for_run()
        stage = PlannedStage(StageKey(), "all", 2, "cpu slot", 2, 2, 1, 10.0, 12.0)
        prices = PriceList("local", (InstanceType("cpu slot", "cpu", 1, 1.0),))
        self._tables.plans_table.plans[run_id] = RunPlan(run_id, 1, (stage,), prices, "local", 0.0, 10.0, 12.0)
        return run_id

    def cancel_run(self, run_id: int) -> None:
        self._world.cancel_run(run_id)

    def resume_run(self, run_id: int) -> None:
        self._world.resume_run(run_id)

    def drop_run(self, run_id: int) -> None:
        self._world.drop_run(run_id)

    def pause_trials(self, run_id: int) -> None:
        self._set_trials(run_id, status="paused", n_steps_done=2 * N_PARTITIONS, target_epochs=1)

    def end_trials(self, run_id: int) -> None:
        self._set_trials(run_id, status="finished", n_steps_done=(2 * MAX_EPOCHS + 1) * N_PARTITIONS)

    def _set_trials(self, run_id: int, **values: Any) -> None:
        for trial in self._tables.run(run_id).trials:
            self._tables.trials[trial.trial_id] = replace(trial, **values)

    @contextmanager
    def held(self, run_id: int) -> Iterator[None]:
        self._tables.held.add(run_id)
        yield
        self._tables.held.discard(run_id)

    def take_over(self) -> None:
        self._tables.draw_lease()

    def break_session(self, slot_id: int) -> None:
        self._world.lose_slot(slot_id)

    def run_status(self, run_id: int) -> str:
        return self._tables.run(run_id).status

    def trials(self, run_id: int) -> list[tuple[str, int]]:
        return [(trial.status, trial.n_steps_done) for trial in self._tables.run(run_id).trials]

    def units(self, run_id: int) -> list[tuple[int, str, int, int]]:
        units = [row.order.unit for row in self._tables.units if row.order.unit.run_id == run_id]
        return [(unit.trial_id, unit.kind, unit.epoch, unit.partition_number) for unit in units]

    def events(self, run_id: int) -> list[str]:
        return [kind for kind, _ in self._tables.notes]

    def charged(self, tenant: str) -> float:
        return self._tables.charged[tenant]

    def n_beliefs(self, run_id: int) -> int:
        return len(self._tables.beliefs.get(run_id, ()))

    def n_allocations(self, run_id: int) -> int:
        return sum(len(log.groups) for run, _, log in self._tables.allocations if run == run_id)

    def plan(self, run_id: int) -> str | None:
        return next((scheduler for run, scheduler in reversed(self._tables.plans) if run == run_id), None)

    def set_policy(self, policy: str) -> None:
        self._world.set_tenancy(replace(self._tables.tenancy, policy=policy))
